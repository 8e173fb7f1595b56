-- Repairs that need no knowledge of a key's meaning. Each checks the key again before it changes anything.

-- audit_drop: delete a key of the wrong type.
-- KEYS key   ARGV declared type, '' for any   Reply 1 or 0
command('drop', function(keys, args)
  local kind = redis.call('TYPE', keys[1])
  kind = type(kind) == 'table' and kind.ok or kind
  if kind == 'none' or kind == args[1] then return 0 end
  return redis.call('UNLINK', keys[1])
end)

-- audit_lifetime: set a key's declared lifetime.
-- KEYS key   ARGV longest time to live in ms, '' for none   Reply 1 or 0
command('lifetime', function(keys, args)
  if args[1] == '' then return redis.call('PERSIST', keys[1]) end
  local left = redis.call('PTTL', keys[1])
  if left == -2 or (left >= 0 and left <= tonumber(args[1])) then return 0 end
  return redis.call('PEXPIRE', keys[1], args[1])
end)

-- audit_replace_field: replace a field that still has the value that was read.
-- KEYS hash   ARGV field, value that was read, new value   Reply 1 or 0
command('replace_field', function(keys, args)
  if redis.call('HGET', keys[1], args[1]) ~= args[2] then return 0 end
  redis.call('HSET', keys[1], args[1], args[3])
  return 1
end)

-- audit_remove_entry: remove an invalid member, field or string.
-- KEYS key   ARGV member   Reply number of removed members
command('remove_entry', function(keys, args)
  local kind = redis.call('TYPE', keys[1])
  kind = type(kind) == 'table' and kind.ok or kind
  local remove = {set = 'SREM', zset = 'ZREM', hash = 'HDEL'}
  if remove[kind] then return redis.call(remove[kind], keys[1], args[1]) end
  if kind == 'list' then return redis.call('LREM', keys[1], 0, args[1]) end
  if kind == 'string' and redis.call('GET', keys[1]) == args[1] then return redis.call('UNLINK', keys[1]) end
  return 0
end)
