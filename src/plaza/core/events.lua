-- Streams of events: what consumer groups need beyond single commands. Every function is given the keys of one stream.

-- Who has an event, and how often it was delivered; nil if nobody waits for it to be acknowledged.
local function pending(stream, group, id)
  local found = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if found then return found[2], found[4] end
end

local function is_mine(stream, group, consumer, id)
  local owner, tries = pending(stream, group, id)
  return owner == consumer, tries
end

-- events_claim: take over what others were given and have not touched for a while: they died or stalled.
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

-- events_retake: try once more what is still ours.   KEYS stream   ARGV group, consumer, id
-- Reply {id, tries, {field, value, …}}, or nil if it is not ours any more
command('retake', function(keys, args)
  local stream, group, consumer, id = keys[1], args[1], args[2], args[3]
  local mine, tries = is_mine(stream, group, consumer, id)
  if not mine then return nil end
  local entry = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
  return entry and {id, tries + 1, entry[2]}
end)

-- events_keep: we are still at it; nobody need take it over.   KEYS stream   ARGV group, consumer, id, …
command('keep', function(keys, args)
  for i = 3, #args do
    if is_mine(keys[1], args[1], args[2], args[i]) then
      redis.call('XCLAIM', keys[1], args[1], args[2], 0, args[i], 'JUSTID')
    end
  end
  return 1
end)

-- events_give_back: we stop. What we have not handled is anybody's at once, and was not tried.
-- KEYS stream   ARGV group, consumer, idle_ms   Reply how many
command('give_back', function(keys, args)
  local stream, group, consumer = keys[1], args[1], args[2]
  local mine = redis.pcall('XPENDING', stream, group, '-', '+', 1000, consumer)
  if mine.err then return 0 end -- the stream is gone, and the group with it
  for _, found in ipairs(mine) do
    local tries = math.max(found[4] - 1, 0)
    redis.call('XCLAIM', stream, group, consumer, 0, found[1], 'IDLE', args[3], 'RETRYCOUNT', tries, 'JUSTID')
  end
  if #mine == 0 then redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer) end
  return #mine
end)

-- events_untry: the last try does not count; something that the handler needs was away.
-- KEYS stream   ARGV group, consumer, id
command('untry', function(keys, args)
  local mine, tries = is_mine(keys[1], args[1], args[2], args[3])
  if not mine then return 0 end
  redis.call('XCLAIM', keys[1], args[1], args[2], 0, args[3], 'RETRYCOUNT', math.max(tries - 1, 0), 'JUSTID')
  return 1
end)

-- events_bury: give an event up, with the reason; the newest `most` dead ones are kept.
-- KEYS stream, dead   ARGV group, consumer, id, reason, most   Reply 1, or 0 if it is not ours any more
command('bury', function(keys, args)
  local stream, group, id = keys[1], args[1], args[3]
  local mine, tries = is_mine(stream, group, args[2], id)
  if not mine then return 0 end
  local entry = redis.call('XRANGE', stream, id, id)[1]
  local fields = entry and entry[2] or {}
  for _, word in ipairs({'dead_group', group, 'dead_id', id, 'dead_tries', text(tries), 'dead_reason', args[4]}) do
    fields[#fields + 1] = word
  end
  redis.call('XADD', keys[2], 'MAXLEN', '~', args[5], '*', unpack(fields))
  redis.call('XACK', stream, group, id)
  return 1
end)

-- events_revive: tell a dead event once more; its other groups will see it again too.
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

local function named(list)
  local fields = {}
  for i = 1, #list, 2 do fields[list[i]] = list[i + 1] end
  return fields
end

local function split(id)
  local ms, seq = id:match('^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function is_before(a, b)
  local a_ms, a_seq = split(a)
  local b_ms, b_seq = split(b)
  return a_ms < b_ms or (a_ms == b_ms and a_seq < b_seq)
end

local function next_id(id)
  local ms, seq = split(id)
  return string.format('%.0f-%.0f', ms, seq + 1)
end

-- The first event that a group has not handled: its oldest pending one, else what follows the last it was given.
local function first_needed(stream, group)
  local waiting = redis.call('XPENDING', stream, group.name)
  if waiting[1] > 0 then return waiting[2] end
  return next_id(group['last-delivered-id'])
end

local function forget_idle(stream, group, idle_ms)
  for _, found in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local consumer = named(found)
    if consumer.pending == 0 and consumer.idle > idle_ms then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer.name)
    end
  end
end

-- events_trim: remove what every group has handled, and what is beyond the bound; forget consumers long gone.
-- KEYS stream   ARGV most, step, idle_ms   Reply {removed, of these lost unread, {group, waiting}, …}
-- At most `step` events each go in one call, so that Valkey is not held up.
command('trim', function(keys, args)
  local stream, most, step = keys[1], tonumber(args[1]), args[2]
  if redis.call('EXISTS', stream) == 0 then return {0, 0} end
  local needed, reply = nil, {0, 0}
  for _, found in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local group = named(found)
    local first = first_needed(stream, group)
    if not needed or is_before(first, needed) then needed = first end
    forget_idle(stream, group.name, tonumber(args[3]))
    reply[#reply + 1] = {group.name, (group.lag or 0) + group.pending}
  end
  if needed then reply[1] = redis.call('XTRIM', stream, 'MINID', '~', needed, 'LIMIT', step) end
  if redis.call('XLEN', stream) > most then
    reply[2] = redis.call('XTRIM', stream, 'MAXLEN', '~', most, 'LIMIT', step)
    reply[1] = reply[1] + reply[2]
  end
  return reply
end)
