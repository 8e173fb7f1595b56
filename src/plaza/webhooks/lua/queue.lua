-- Queues: the events that wait for an endpoint.

local function split_id(id)
  local ms, seq = id:match('^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function is_after(a, b)
  local a_ms, a_seq = split_id(a)
  local b_ms, b_seq = split_id(b)
  return a_ms > b_ms or (a_ms == b_ms and a_seq > b_seq)
end

local function forget_delivery(id, delivery)
  redis.call('ZREM', key.webhook_failing(id), delivery)
  redis.call('ZREM', key.webhook_attempts(id), delivery)
  redis.call('HDEL', key.webhook_deliveries(id), delivery)
end

-- Removes waiting events without delivering them. Returns how many.
local function drop(id, entries)
  for _, entry in ipairs(entries) do
    redis.call('XDEL', key.webhook_queue(id), entry[1])
    forget_delivery(id, entry[1])
  end
  if #entries > 0 then redis.call('HINCRBY', key.webhook_state(id), 'dropped', #entries) end
  return #entries
end

local function drop_overflow(id)
  local queue = key.webhook_queue(id)
  local over = redis.call('XLEN', queue) - MAX_QUEUED
  if over <= 0 then return 0 end
  return drop(id, redis.call('XRANGE', queue, '-', '+', 'COUNT', over))
end

-- webhooks_enqueue: add events of one stream, in order, except those that were considered before.
-- KEYS webhook   ARGV id, stream, position after this call, then per event: entry id, event id, type, subject, body
-- Reply {added, dropped}; {-1, 0} if the endpoint is disabled or deleted
command('enqueue', function(keys, args)
  local id, stream = args[1], args[2]
  if not is_enabled(id) then return {-1, 0} end
  local queue, positions, added = key.webhook_queue(id), key.webhook_positions(id), 0
  local position = redis.call('HGET', positions, stream)
  for i = 4, #args, 5 do
    if not position or is_after(args[i], position) then
      redis.call('XADD', queue, '*', 'event', args[i + 1], 'type', args[i + 2], 'subject', args[i + 3],
        'body', args[i + 4], 'stream', stream, 'entry', args[i])
      added = added + 1
    end
  end
  if not position or is_after(args[3], position) then redis.call('HSET', positions, stream, args[3]) end
  return {added, drop_overflow(id)}
end)

-- webhooks_waiting: read events of the queue after one of them, oldest first.   KEYS webhook   ARGV id, after, count
-- Reply {{delivery, {field, value, …}, next attempt or false, record or false}, …}
query('waiting', function(keys, args)
  local id, reply = args[1], {}
  for _, entry in ipairs(redis.call('XRANGE', key.webhook_queue(id), '(' .. args[2], '+', 'COUNT', args[3])) do
    local due = redis.call('ZSCORE', key.webhook_failing(id), entry[1])
    reply[#reply + 1] = {entry[1], entry[2], due, due and redis.call('HGET', key.webhook_deliveries(id), entry[1])}
  end
  return reply
end)

-- webhooks_resend: add one event again, which was delivered before.
-- KEYS webhook   ARGV id, stream, entry id, event id, type, subject, body   Reply the id of the new delivery
command('resend', function(keys, args)
  local id = args[1]
  require_webhook(id)
  if not is_enabled(id) then fail('webhook_disabled', 'The webhook is disabled. Enable it first.') end
  local delivery = redis.call('XADD', key.webhook_queue(id), '*', 'event', args[4], 'type', args[5],
    'subject', args[6], 'body', args[7], 'stream', args[2], 'entry', args[3])
  drop_overflow(id)
  touch(id)
  return delivery
end)
