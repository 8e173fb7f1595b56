-- Deliveries: the result of each attempt to send a queued event.

-- Keeps the newest records. A delivery that will be retried keeps its record, and counts as new.
local function trim_records(id, now_ms)
  local attempts = key.webhook_attempts(id)
  while redis.call('ZCARD', attempts) > MAX_DELIVERIES + redis.call('ZCARD', key.webhook_failing(id)) do
    local oldest = redis.call('ZPOPMIN', attempts)[1]
    if redis.call('ZSCORE', key.webhook_failing(id), oldest) then
      redis.call('ZADD', attempts, now_ms, oldest)
    else
      redis.call('HDEL', key.webhook_deliveries(id), oldest)
    end
  end
end

local function record_attempt(id, delivery, now_ms, record)
  redis.call('HSET', key.webhook_deliveries(id), delivery, record)
  redis.call('ZADD', key.webhook_attempts(id), now_ms, delivery)
end

-- webhooks_delivered: an event arrived.   KEYS webhook   ARGV id, delivery, now_ms, record
-- Reply 1, or 0 if it was not waiting any more
command('delivered', function(keys, args)
  local id, delivery, now_ms = args[1], args[2], args[3]
  if redis.call('XDEL', key.webhook_queue(id), delivery) == 0 then return 0 end
  local state = key.webhook_state(id)
  redis.call('HINCRBY', state, 'delivered', 1)
  redis.call('HSET', state, 'last_delivered_at', now_ms)
  redis.call('HDEL', state, 'failures', 'failing_since', 'next_at', 'last_error')
  redis.call('ZREM', key.webhook_failing(id), delivery)
  record_attempt(id, delivery, now_ms, args[4])
  trim_records(id, now_ms)
  return 1
end)

-- webhooks_failed: an attempt failed.
-- KEYS webhook   ARGV id, delivery, now_ms, record, error, next attempt of the event, of the endpoint or ''
-- Reply failures in a row, or 0 if it was not waiting any more
command('failed', function(keys, args)
  local id, delivery, now_ms = args[1], args[2], args[3]
  if #redis.call('XRANGE', key.webhook_queue(id), delivery, delivery) == 0 then return 0 end
  local state = key.webhook_state(id)
  redis.call('HSETNX', state, 'failing_since', now_ms)
  redis.call('HSET', state, 'last_error', args[5])
  if args[7] ~= '' then redis.call('HSET', state, 'next_at', args[7]) end
  redis.call('ZADD', key.webhook_failing(id), args[6], delivery)
  record_attempt(id, delivery, now_ms, args[4])
  return redis.call('HINCRBY', state, 'failures', 1)
end)

-- webhooks_tested: record the result of a test, which does not wait in the queue.
-- KEYS webhook   ARGV id, delivery, now_ms, record
command('tested', function(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return 0 end
  record_attempt(unpack(args))
  trim_records(args[1], args[3])
  return 1
end)

-- webhooks_retry: make a failed delivery due now.   KEYS webhook   ARGV id, delivery
-- Reply 1, or 0 if it is not waiting for a retry
command('retry', function(keys, args)
  local id, delivery = args[1], args[2]
  require_webhook(id)
  if not redis.call('ZSCORE', key.webhook_failing(id), delivery) then return 0 end
  if not is_enabled(id) then fail('webhook_disabled', 'The webhook is disabled. Enable it first.') end
  redis.call('ZADD', key.webhook_failing(id), 0, delivery)
  redis.call('HDEL', key.webhook_state(id), 'next_at')
  touch(id)
  return 1
end)

-- webhooks_expire: remove records and waiting events from before a time, at most `step` of each, and an old secret.
-- KEYS webhook   ARGV id, now_ms, before_ms, step   Reply {records, events}
command('expire', function(keys, args)
  local id, now_ms, before, step = args[1], tonumber(args[2]), tonumber(args[3]), tonumber(args[4])
  local records = redis.call('ZRANGE', key.webhook_attempts(id), '-inf', '(' .. args[3], 'BYSCORE', 'LIMIT', 0, step)
  local removed = 0
  for _, delivery in ipairs(records) do
    if not redis.call('ZSCORE', key.webhook_failing(id), delivery) then
      forget_delivery(id, delivery)
      removed = removed + 1
    end
  end
  if finite(redis.call('HGET', keys[1], 'previous_until'), now_ms) < now_ms then
    redis.call('HDEL', keys[1], 'previous_secret', 'previous_until')
  end
  local queue = key.webhook_queue(id)
  return {removed, drop(id, redis.call('XRANGE', queue, '-', '(' .. text(before) .. '-0', 'COUNT', step))}
end)
