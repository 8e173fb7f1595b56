-- What the audit mends without knowing what a key means. Each looks again before it changes anything.

-- drop: a key of the wrong type goes, for nothing can read it.   KEYS key   ARGV the type it should have   Reply 1 or 0
command('drop', function(keys, args)
  local kind = redis.call('TYPE', keys[1])
  kind = type(kind) == 'table' and kind.ok or kind
  if kind == 'none' or kind == args[1] then return 0 end
  return redis.call('UNLINK', keys[1])
end)

-- lifetime: a key lives as long as it should.   KEYS key   ARGV the longest time to live in ms, '' for ever   Reply 1 or 0
command('lifetime', function(keys, args)
  if args[1] == '' then return redis.call('PERSIST', keys[1]) end
  local left = redis.call('PTTL', keys[1])
  if left == -2 or (left >= 0 and left <= tonumber(args[1])) then return 0 end
  return redis.call('PEXPIRE', keys[1], args[1])
end)

-- without: a member that cannot be goes.   KEYS key   ARGV member
command('without', function(keys, args)
  local kind = redis.call('TYPE', keys[1])
  kind = type(kind) == 'table' and kind.ok or kind
  local remove = {set = 'SREM', zset = 'ZREM', hash = 'HDEL'}
  if remove[kind] then return redis.call(remove[kind], keys[1], args[1]) end
  if kind == 'list' then return redis.call('LREM', keys[1], 0, args[1]) end
  if kind == 'string' and redis.call('GET', keys[1]) == args[1] then return redis.call('UNLINK', keys[1]) end
  return 0
end)
