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

-- Returns the id of the oldest event from `from` on, or nil.
local function oldest(stream, from)
  local entry = redis.call('XRANGE', stream, from, '+', 'COUNT', 1)[1]
  return entry and entry[1]
end

-- Returns the id of the oldest event that a group has not handled, or nil if it has handled all.
local function oldest_unhandled(stream, group)
  local waiting = redis.call('XPENDING', stream, group.name)
  if waiting[1] > 0 then return oldest(stream, waiting[2]) end
  return oldest(stream, '(' .. group['last-delivered-id'])
end

local function remove_idle_consumers(stream, group, idle_ms)
  for _, found in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local consumer = to_table(found)
    if consumer.pending == 0 and consumer.idle > idle_ms then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer.name)
    end
  end
end

-- Removes events from before a time, at most `step`. Returns how many. First whole blocks, which is fast; then the old
-- events of the block that has newer ones too, since old events name users who may have been deleted since.
local function trim_by_age(stream, before, step)
  local removed = redis.call('XTRIM', stream, 'MINID', '~', before, 'LIMIT', step)
  if 2 * removed < tonumber(step) then removed = removed + redis.call('XTRIM', stream, 'MINID', before) end
  return removed
end

-- events_trim: remove old events and events beyond the limit, note groups that had not handled them, and remove
-- consumers that are gone.
-- KEYS stream, behind, dead   ARGV max_age_ms, max, step, idle_ms
-- Reply {removed, {group, waiting, 1 if it lost events}, …}
-- One call removes at most `step` events for each reason, so that Valkey is not blocked.
command('trim', function(keys, args)
  local stream, behind, step, at = keys[1], keys[2], args[3], clock_ms()
  local before = text(at - tonumber(args[1]))
  trim_by_age(keys[3], before, step)
  if redis.call('EXISTS', stream) == 0 then return {0} end
  local groups = {}
  for i, found in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local group = to_table(found)
    remove_idle_consumers(stream, group.name, tonumber(args[4]))
    groups[i] = {group.name, (group.lag or 0) + group.pending, oldest_unhandled(stream, group)}
  end
  local removed = trim_by_age(stream, before, step)
  if redis.call('XLEN', stream) > tonumber(args[2]) then
    removed = removed + redis.call('XTRIM', stream, 'MAXLEN', '~', args[2], 'LIMIT', step)
  end
  local reply = {removed}
  for i, group in ipairs(groups) do
    local lost = removed > 0 and group[3] and #redis.call('XRANGE', stream, group[3], group[3]) == 0
    if lost then redis.call('HSET', behind, group[1], text(at)) end
    reply[i + 1] = {group[1], group[2], lost and 1 or 0}
  end
  return reply
end)

-- events_rebuilt: remove the note that a group lost events, unless it lost more since.
-- KEYS behind   ARGV group, time of the note
command('rebuilt', function(keys, args)
  local at = redis.call('HGET', keys[1], args[1])
  if at and tonumber(at) <= tonumber(args[2]) then redis.call('HDEL', keys[1], args[1]) end
end)

-- events_deadline: until when rows may be relayed that are read after this.   KEYS any   Reply Unix milliseconds
query('deadline', function()
  return text(clock_ms() + PROJECTION_MS)
end)

-- events_append: append events of SQL rows, in order, except those that the stream was given in the last minute.
-- KEYS stream, relayed   ARGV deadline, then id, type, subject, time, data, origin of each
command('append', function(keys, args)
  local stream, relayed, at = keys[1], keys[2], clock_ms()
  refuse_late(args[1])
  redis.call('ZREMRANGEBYSCORE', relayed, '-inf', text(at - PUBLISHED_MS))
  for i = 2, #args, 6 do
    if redis.call('ZADD', relayed, 'NX', text(at), args[i]) == 1 then append_event(stream, unpack(args, i, i + 5)) end
  end
  redis.call('PEXPIRE', relayed, PUBLISHED_MS)
end)

-- events_after: the next entries of several streams, up to the last millisecond that is over: entries that are added
-- later to any of the streams come after them. If the clock was set back, entries of the future do not wait for it.
-- KEYS streams   ARGV count, last id read of each   Reply {1 if newer entries wait, {entry, …} of each stream, …}
query('after', function(keys, args)
  local at, reply = clock_ms(), {0}
  for i, stream in ipairs(keys) do
    local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
    local newest_ms = newest and tonumber(newest[1]:match('^%d+')) or 0
    local upto = newest_ms > at + 1000 and '+' or text(at - 1)
    reply[i + 1] = newest_ms > 0 and redis.call('XRANGE', stream, '(' .. args[i + 1], upto, 'COUNT', args[1]) or {}
    if upto ~= '+' and newest_ms >= at then reply[1] = 1 end
  end
  return reply
end)
