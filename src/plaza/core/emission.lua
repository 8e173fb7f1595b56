-- Events: what happened, in a stream of the domain, for consumers that the domain does not know.
--
--     emit('post.liked', post, {post = post, author = author, username = name})
--
-- `data` has ids and usernames only. `origin` is 'import' for what another system or the demo brought in.
-- On one server the event is in `events:<domain>` in the same atomic step as the source data.
--
-- On a cluster the stream is on other nodes. The command appends the event to its owner's queue, `unpublished`, beside the
-- source data; the caller then publishes all that is queued, in order, and removes it from the queue when it settles its
-- outbox entry. An event is named by an epoch (one for each life of this Lua state: a failover, a restart or another
-- release starts a new one) and a number that grows. The shard remembers the last number of each epoch and owner, and
-- drops what it has. So a caller that stalls, or dies at any step, neither loses, doubles nor reorders an owner's events.

-- How many queued events one call publishes.
local PUBLISH_BATCH = 500
-- How long a shard remembers what it has of an owner. Much longer than PROJECTION_MS, after which no call is accepted.
local PUBLISHED_MS = 60000

local EVENT_WORDS = 7 -- an event in a call: epoch, number, type, subject, time, data, origin

local emitted = {} -- cluster: the events of the running command
local epoch, last_number = nil, 0

local function emit(type, subject, data, origin)
  if not EMITS then return end
  local time, json = text(clock_ms()), cjson.encode(data)
  if CLUSTERED then
    emitted[#emitted + 1] = {type, text(subject), time, json, origin or ''}
  elseif origin then
    redis.call('XADD', key.events(LIBRARY), '*', 'type', type, 'subject', text(subject), 'time', time, 'data', json,
      'origin', origin)
  else
    redis.call('XADD', key.events(LIBRARY), '*', 'type', type, 'subject', text(subject), 'time', time, 'data', json)
  end
end

local function queue_of(pending)
  local owner = pending:match('{(.*)}$')
  return key.unpublished(LIBRARY, owner), owner
end

-- Returns the update that publishes an owner's queue: {'PUBLISH', queue, stream, published}. The caller reads the queue.
local function publication(pending)
  local queue, owner = queue_of(pending)
  local digest = redis.sha1hex(owner)
  local shard = tonumber(digest:sub(1, 2), 16) % EVENT_SHARDS
  return {'PUBLISH', queue, key.events_shard(shard, LIBRARY), key.published(shard, LIBRARY, digest)}
end

-- Appends the events of the running command to the queue. Returns the update that publishes them; if nothing else is
-- queued, with the events themselves, which saves the caller a read.
local function queue_emitted(pending, op)
  epoch = epoch or op
  local queue, size = queue_of(pending), 0
  local update = publication(pending)
  for _, event in ipairs(emitted) do
    last_number = last_number + 1
    local words = {epoch, text(last_number), unpack(event)}
    size = redis.call('RPUSH', queue, cjson.encode(words))
    for _, word in ipairs(words) do update[#update + 1] = word end
  end
  local alone = size == #emitted and size <= PUBLISH_BATCH
  emitted = {}
  return alone and update or {unpack(update, 1, 4)}
end

-- queued_events: read the next events of a queue.   KEYS queue   Reply {deadline, 1 if there are more, event, …}, flat
local function queued_events(keys)
  local reply = {text(clock_ms() + PROJECTION_MS), redis.call('LLEN', keys[1]) > PUBLISH_BATCH and 1 or 0}
  for _, encoded in ipairs(redis.call('LRANGE', keys[1], 0, PUBLISH_BATCH - 1)) do
    for _, word in ipairs(cjson.decode(encoded)) do reply[#reply + 1] = word end
  end
  return reply
end

-- unqueue_events: remove published events.   KEYS queue   ARGV epoch, last number, …
local function unqueue_events(keys, args)
  local last = {}
  for i = 1, #args, 2 do last[args[i]] = tonumber(args[i + 1]) end
  local oldest = redis.call('LINDEX', keys[1], 0)
  while oldest do
    local event = cjson.decode(oldest)
    if tonumber(event[2]) > (last[event[1]] or 0) then return end
    redis.call('LPOP', keys[1])
    oldest = redis.call('LINDEX', keys[1], 0)
  end
end

-- Appends an event with a given id to a stream.
local function append_event(stream, id, type, subject, time, data, origin)
  local words = {'id', id, 'type', type, 'subject', subject, 'time', time, 'data', data}
  if origin ~= '' then words[11], words[12] = 'origin', origin end
  redis.call('XADD', stream, '*', unpack(words))
end

-- publish_events: append an owner's events to its shard, in order, except those it has.
-- KEYS stream, published   ARGV deadline, event, …
local function publish_events(keys, args)
  refuse_late(args[1])
  local stream, published, last = keys[1], keys[2], {}
  for i = 2, #args, EVENT_WORDS do
    local of, number, type, subject, time, data, origin = unpack(args, i, i + EVENT_WORDS - 1)
    last[of] = last[of] or tonumber(redis.call('HGET', published, of) or 0)
    if tonumber(number) > last[of] then
      append_event(stream, LIBRARY .. '-' .. of .. '-' .. number, type, subject, time, data, origin)
      last[of] = tonumber(number)
      redis.call('HSET', published, of, number)
    end
  end
  redis.call('PEXPIRE', published, PUBLISHED_MS)
end
