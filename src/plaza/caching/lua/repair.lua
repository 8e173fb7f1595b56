-- Repair commands of the audit.   KEYS a key of the owner   ARGV now_ms, then the ids that the header names

-- repair_row: whether and how often a row is copied.   item
command('repair_row', function(keys, args)
  local delay, due = unpack(redis.call('HMGET', keys[1], 'delay', 'due'))
  if delay and not (tonumber(delay) and tonumber(delay) > 0) then
    redis.call('HDEL', keys[1], 'delay', 'due')
  elseif delay and not tonumber(due) then
    redis.call('HSET', keys[1], 'due', args[1])
  end
  project('scheduled', args[2])
end)

-- repair_views: no score is above 0.   KEYS viewed   item
command('repair_views', function(keys, args)
  if tonumber(redis.call('ZSCORE', keys[1], args[2]) or 0) > 0 then redis.call('ZREM', keys[1], args[2]) end
end)
