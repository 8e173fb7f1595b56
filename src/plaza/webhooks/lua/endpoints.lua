-- Endpoints: their settings, and whether they are enabled.

-- index: the list of endpoints, with the revision of each.
projection('index', function(id)
  local revision = redis.call('HGET', key.webhook(id), 'revision')
  if revision then return {'HSET', key.webhooks(), id, revision} end
  return {'HDEL', key.webhooks(), id}
end)

local function require_webhook(id)
  if redis.call('EXISTS', key.webhook(id)) == 0 then fail('no_webhook', 'There is no such webhook.') end
end

local function is_enabled(id)
  return redis.call('HEXISTS', key.webhook(id), 'url') == 1
    and redis.call('HEXISTS', key.webhook(id), 'disabled_at') == 0
end

-- Makes workers read the endpoint again.
local function touch(id)
  local webhook = key.webhook(id)
  redis.call('HSET', webhook, 'revision', next_number(redis.call('HGET', webhook, 'revision')))
  project('index', id)
end

local function disable(id, now_ms, reason)
  redis.call('HSET', key.webhook(id), 'disabled_at', now_ms, 'disabled_reason', reason)
end

-- Events from now on are sent. The clocks of a cluster's nodes differ a little.
local function start_now(id)
  redis.call('HSET', key.webhook(id), 'since', text(clock_ms() - (CLUSTERED and 1000 or 0)))
end

-- Starts again: what happened meanwhile is not sent, and old failures no longer count.
local function enable(id)
  redis.call('HDEL', key.webhook(id), 'disabled_at', 'disabled_reason')
  redis.call('HDEL', key.webhook_state(id), 'failures', 'failing_since', 'next_at', 'last_error')
  start_now(id)
  local failing = redis.call('ZRANGE', key.webhook_failing(id), 0, -1)
  for _, delivery in ipairs(failing) do
    redis.call('ZREM', key.webhook_attempts(id), delivery)
    redis.call('HDEL', key.webhook_deliveries(id), delivery)
  end
  redis.call('DEL', key.webhook_failing(id))
end

-- webhooks_create: create an endpoint.   KEYS webhook   ARGV id, field, value, …   Reply 1, or 0 if it exists
command('create', function(keys, args)
  if redis.call('EXISTS', keys[1]) == 1 then return 0 end
  redis.call('HSET', keys[1], unpack(args, 2))
  start_now(args[1])
  touch(args[1])
  return 1
end)

-- webhooks_change: change an endpoint.
-- KEYS webhook   ARGV id, now_ms, '1' to enable, '0' to disable or '', reason, field, value, …
command('change', function(keys, args)
  local id, enabled = args[1], args[3]
  require_webhook(id)
  if #args > 4 then redis.call('HSET', keys[1], unpack(args, 5)) end
  if enabled == '0' and is_enabled(id) then disable(id, args[2], args[4]) end
  if enabled == '1' and not is_enabled(id) then enable(id) end
  touch(id)
end)

-- webhooks_rotate: replace the secret; the old one stays valid for a while.
-- KEYS webhook   ARGV id, secret, previous_until, operation ('' if it may not be repeated)
-- Reply 1, or 0 if this operation has replaced it already
command('rotate', function(keys, args)
  require_webhook(args[1])
  local previous, rotation = unpack(redis.call('HMGET', keys[1], 'secret', 'rotation'))
  if args[4] ~= '' and rotation == args[4] then return 0 end
  redis.call('HSET', keys[1], 'secret', args[2], 'previous_secret', previous, 'previous_until', args[3], 'rotation', args[4])
  touch(args[1])
  return 1
end)

-- webhooks_disable: a worker gives up.   KEYS webhook   ARGV id, now_ms, reason   Reply 1, or 0 if it was disabled
command('disable', function(keys, args)
  if not is_enabled(args[1]) then return 0 end
  disable(unpack(args))
  touch(args[1])
  return 1
end)

-- webhooks_remove: delete an endpoint with all its keys.   KEYS webhook   ARGV id
command('remove', function(keys, args)
  local id = args[1]
  require_webhook(id)
  redis.call('UNLINK', keys[1], key.webhook_state(id), key.webhook_queue(id), key.webhook_positions(id),
    key.webhook_deliveries(id), key.webhook_attempts(id), key.webhook_failing(id))
  project('index', id)
end)

-- webhooks_rename_creator: the admin who created it has another name, or with '' none.
-- KEYS webhook   ARGV old, new
command('rename_creator', function(keys, args)
  if redis.call('HGET', keys[1], 'created_by') ~= args[1] then return 0 end
  if args[2] == '' then return redis.call('HDEL', keys[1], 'created_by') end
  redis.call('HSET', keys[1], 'created_by', args[2])
  return 1
end)
