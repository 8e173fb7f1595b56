-- Event streams: what consumer groups need beyond single commands. Every function gets the keys of one stream.

-- Returns the consumer of an unacknowledged event and how often it was delivered, or nil.
local function pending(stream, group, id)
  local found = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if found then return found[2], found[4] end
end

local function is_owner(stream, group, consumer, id)
  local owner, tries = pending(stream, group, id)
  return owner == consumer, tries
end

-- events_claim: take over events whose consumer has been silent for a while: it died or stalled.
-- KEYS stream   ARGV group, consumer, idle_ms, count, cursor   Reply {next cursor, {id, tries, {field, value, …}}, …}
command('claim', function(keys, args)
  local stream, group = keys[1], args[1]
  local claimed = redis.call('XAUTOCLAIM', stream, group, args[2], args[3], args[5], 'COUNT', args[4])
  local reply = {claimed[1]}
  for _, entry in ipairs(claimed[2]) do
    local _, tries = pending(stream, group, entry[1])
    reply[#reply + 1] = {entry[1], tries, entry[2]}
  end
  return reply
end)

-- events_retry: deliver an event again to its consumer.   KEYS stream   ARGV group, consumer, id
-- Reply {id, tries, {field, value, …}}, or nil if the consumer no longer has it
command('retry', function(keys, args)
  local stream, group, consumer, id = keys[1], args[1], args[2], args[3]
  local owned, tries = is_owner(stream, group, consumer, id)
  if not owned then return nil end
  local entry = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
  return entry and {id, tries + 1, entry[2]}
end)

-- events_touch: reset the idle time of events in progress, so that no other consumer claims them.
-- KEYS stream   ARGV group, consumer, id, …
command('touch', function(keys, args)
  for i = 3, #args do
    if is_owner(keys[1], args[1], args[2], args[i]) then
      redis.call('XCLAIM', keys[1], args[1], args[2], 0, args[i], 'JUSTID')
    end
  end
  return 1
end)

-- events_release: a consumer stops. Others can claim its unhandled events at once, and the try does not count.
-- KEYS stream   ARGV group, consumer, idle_ms   Reply how many
command('release', function(keys, args)
  local stream, group, consumer = keys[1], args[1], args[2]
  local pending_events = redis.pcall('XPENDING', stream, group, '-', '+', 1000, consumer)
  if pending_events.err then return 0 end -- the stream was deleted, and its groups with it
  for _, found in ipairs(pending_events) do
    local tries = math.max(found[4] - 1, 0)
    redis.call('XCLAIM', stream, group, consumer, 0, found[1], 'IDLE', args[3], 'RETRYCOUNT', tries, 'JUSTID')
  end
  if #pending_events == 0 then redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer) end
  return #pending_events
end)

-- events_uncount_try: the last try does not count, because a service that the handler needs was unavailable.
-- KEYS stream   ARGV group, consumer, id
command('uncount_try', function(keys, args)
  local owned, tries = is_owner(keys[1], args[1], args[2], args[3])
  if not owned then return 0 end
  redis.call('XCLAIM', keys[1], args[1], args[2], 0, args[3], 'RETRYCOUNT', math.max(tries - 1, 0), 'JUSTID')
  return 1
end)

-- events_dead_letter: move an event to the dead events, with the reason; the newest `max` of them are kept.
-- KEYS stream, dead   ARGV group, consumer, id, reason, max   Reply 1, or 0 if the consumer no longer has it
command('dead_letter', function(keys, args)
  local stream, group, id = keys[1], args[1], args[3]
  local owned, tries = is_owner(stream, group, args[2], id)
  if not owned then return 0 end
  local entry = redis.call('XRANGE', stream, id, id)[1]
  local fields = entry and entry[2] or {}
  for _, word in ipairs({'dead_group', group, 'dead_id', id, 'dead_tries', text(tries), 'dead_reason', args[4]}) do
    fields[#fields + 1] = word
  end
  redis.call('XADD', keys[2], 'MAXLEN', '~', args[5], '*', unpack(fields))
  redis.call('XACK', stream, group, id)
  return 1
end)

-- events_revive: add a dead event to its stream again. All groups of the stream get it again.
-- KEYS stream, dead   ARGV dead id   Reply its new id, or nil if there is no such dead event
command('revive', function(keys, args)
  local entry = redis.call('XRANGE', keys[2], args[1], args[1])[1]
  if not entry then return nil end
  local fields = {}
  for i = 1, #entry[2], 2 do
    if entry[2][i]:sub(1, 5) ~= 'dead_' then
      fields[#fields + 1] = entry[2][i]
      fields[#fields + 1] = entry[2][i + 1]
    end
  end
  redis.call('XDEL', keys[2], args[1])
  return redis.call('XADD', keys[1], '*', unpack(fields))
end)

local function to_table(list)
  local fields = {}
  for i = 1, #list, 2 do fields[list[i]] = list[i + 1] end
  return fields
end

local function split_id(id)
  local ms, seq = id:match('^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function is_before(a, b)
  local a_ms, a_seq = split_id(a)
  local b_ms, b_seq = split_id(b)
  return a_ms < b_ms or (a_ms == b_ms and a_seq < b_seq)
end

local function next_id(id)
  local ms, seq = split_id(id)
  return string.format('%.0f-%.0f', ms, seq + 1)
end

-- The id of the first event that a group has not handled: its oldest pending one, else the one after the last delivered.
local function first_needed(stream, group)
  local waiting = redis.call('XPENDING', stream, group.name)
  if waiting[1] > 0 then return waiting[2] end
  return next_id(group['last-delivered-id'])
end

local function remove_idle_consumers(stream, group, idle_ms)
  for _, found in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local consumer = to_table(found)
    if consumer.pending == 0 and consumer.idle > idle_ms then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer.name)
    end
  end
end

-- events_trim: remove events that every group has handled, events beyond the limit, and consumers that are gone.
-- KEYS stream   ARGV max, step, idle_ms   Reply {removed, of these unread, {group, waiting}, …}
-- One call removes at most `step` events for each reason, so that Valkey is not blocked.
command('trim', function(keys, args)
  local stream, max, step = keys[1], tonumber(args[1]), args[2]
  if redis.call('EXISTS', stream) == 0 then return {0, 0} end
  local needed, reply = nil, {0, 0}
  for _, found in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local group = to_table(found)
    local first = first_needed(stream, group)
    if not needed or is_before(first, needed) then needed = first end
    remove_idle_consumers(stream, group.name, tonumber(args[3]))
    reply[#reply + 1] = {group.name, (group.lag or 0) + group.pending}
  end
  if needed then reply[1] = redis.call('XTRIM', stream, 'MINID', '~', needed, 'LIMIT', step) end
  if redis.call('XLEN', stream) > max then
    reply[2] = redis.call('XTRIM', stream, 'MAXLEN', '~', max, 'LIMIT', step)
    reply[1] = reply[1] + reply[2]
  end
  return reply
end)
