-- Repair commands, called by the audit.

-- repair_webhook: the index follows the endpoint; what belongs to a deleted endpoint goes; records match each other.
-- KEYS webhook   ARGV now_ms, id
command('repair_webhook', function(keys, args)
  local id = args[2]
  if redis.call('HEXISTS', keys[1], 'url') == 0 then
    redis.call('UNLINK', keys[1], key.webhook_state(id), key.webhook_queue(id), key.webhook_positions(id),
      key.webhook_deliveries(id), key.webhook_attempts(id), key.webhook_failing(id))
    project('index', id)
    return 0
  end
  local queue, deliveries, attempts = key.webhook_queue(id), key.webhook_deliveries(id), key.webhook_attempts(id)
  for _, delivery in ipairs(redis.call('ZRANGE', key.webhook_failing(id), 0, -1)) do
    if #redis.call('XRANGE', queue, delivery, delivery) == 0 then redis.call('ZREM', key.webhook_failing(id), delivery) end
  end
  for _, delivery in ipairs(redis.call('ZRANGE', attempts, 0, -1)) do
    if redis.call('HEXISTS', deliveries, delivery) == 0 then redis.call('ZREM', attempts, delivery) end
  end
  for _, delivery in ipairs(redis.call('HKEYS', deliveries)) do
    if not redis.call('ZSCORE', attempts, delivery) then redis.call('HDEL', deliveries, delivery) end
  end
  touch(id)
  return 1
end)
