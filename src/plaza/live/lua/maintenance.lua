-- Commands of the worker: records, ended viewing sessions, other services' heartbeats, personal data, purge.

-- Older heartbeats of other services open no slot.
local MAX_UNRECORDED_MS = 3600000
-- How long a peak stands before it is announced, and how much higher the next one must be.
local PEAK_STANDS_MS, PEAK_GROWTH = 60000, 1.1

-- Statistics members beyond one per viewer: another service that gives a viewer other details adds one.
local function surplus_members(a)
  return redis.call('ZCARD', a.statistics) - redis.call('HLEN', a.viewers)
end

-- Emits 'event.peaked' when a peak has stood for a minute, so that a growing audience emits none, and is a tenth higher
-- than the last one that was announced.
local function announce_peak(e, event, at)
  local peak, peak_at, announced = unpack(redis.call('HMGET', e.info, 'peak', 'peak_at', 'announced'))
  peak, peak_at = tonumber(peak or 0), tonumber(peak_at or 0)
  if peak == 0 or at - peak_at < PEAK_STANDS_MS or peak < PEAK_GROWTH * tonumber(announced or 0) then return end
  redis.call('HSET', e.info, 'announced', peak)
  emit('event.peaked', event, {event = event, viewers = peak, reached_at = peak_at})
end

-- close: write the record of five minutes that are over, if no heartbeat has, and measure the peak.
-- KEYS the audience's 9   ARGV 'event' or 'session', now, min window, 1 to record also while heartbeats are not
-- followed, event ('' for a session)
-- Reply 1, or 0 if heartbeats of other services have to be followed first (see `follow`)
command('close', function(keys, args)
  local a, at, fields = read_audience(keys, 1, args[1]), now(args[2]), {}
  local info, latest = read_info(a), latest_beat(a)
  info.min_window = tonumber(args[3])
  local window = window_at(info.window, at, info.min_window)
  local _, complete = statistics(a, at - window, alive_until(at, window), at, MAX_PASSED_BY_WORKER)
  local surplus = text(surplus_members(a))
  complete = complete and surplus == (redis.call('HGET', a.info, 'surplus') or '0')
  if not complete and args[4] ~= '1' then return 0 end
  -- Heartbeats of other services open no slot.
  local latest_slot = math.floor(latest / SLOT_MS)
  local opened = not info.slot and latest > at - MAX_UNRECORDED_MS and latest_slot > info.recorded
  if opened then info.slot = latest_slot end
  if close_slot(a, info, at) then
    if latest_slot > info.slot then
      append_pair(fields, 'slot', latest_slot)
    else
      redis.call('HDEL', a.info, 'slot')
    end
  elseif opened then
    append_pair(fields, 'slot', latest_slot)
  end
  if not complete then append_pair(fields, 'surplus', surplus) end
  measure_peak(fields, a, info, at, window)
  write_info(a, fields)
  if args[5] ~= '' then announce_peak(a, args[5], at) end
  return 1
end)

-- follow: make the additional keys follow a page of heartbeats that other services may have written.
-- KEYS the audience's 9   ARGV 'event' or 'session', earliest heartbeat, position, count, now
-- Reply {position ('' at the end), number of changes, or -1 to call it again}
command('follow', function(keys, args)
  local a, since = read_audience(keys, 1, args[1]), tonumber(args[2])
  local info = read_info(a)
  if args[3] == '' and a.frontier then
    -- Up to the last heartbeats that can still be recorded.
    local edge = info.slot and (info.slot + 1) * SLOT_MS - AWAY_MS or since
    if not move_frontier(a, math.max(a.frontier, math.min(since, edge)), MAX_PASSED_BY_WORKER) then return {'', -1} end
    local _, _, counted = count_classes(a, math.max(0, since), SCORE_SHIFT - 1, 1e9)
    if counted > redis.call('ZCOUNT', a.heartbeat, since, '+inf') then uncount_removed(a) end
  end
  local position, changed = follow_page(a, since, args[3], tonumber(args[4]), now(args[5]))
  return {position, changed}
end)

-- open: count viewing sessions of another service that are under way: the viewers are at the place from now on.
-- KEYS the event's 14   ARGV event, place, viewer, start, …
command('open', function(keys, args)
  local e, place = read_event(keys), args[2]
  e.event = args[1]
  for i = 3, #args, 2 do
    local user, start = args[i], score_ms(e.starts, args[i])
    local entry = redis.call('HGET', e.viewers, user)
    local open = open_places(entry)
    if entry and start == tonumber(args[i + 1]) and #open < MAX_OPEN_PLACES and not index_of(open, place) then
      table.insert(open, 1, place)
      write_viewer(e, user, first_line(entry), open, place, entry)
      redis.call('HINCRBY', e.info, 'logins', 1)
      emit_viewing('viewing.started', e, user, place, start)
    end
  end
end)

-- wake: list an event for the worker if heartbeats of another service are not recorded yet.
-- KEYS the event's 12   ARGV event, now   Reply 1 if it was not listed
command('wake', function(keys, args)
  local e = read_event(keys)
  local info, latest = read_info(e), latest_beat(e)
  local recent = latest > now(args[2]) - MAX_UNRECORDED_MS and math.floor(latest / SLOT_MS) > info.recorded
  if info.awake or (info.born and not recent) then return 0 end
  redis.call('HSETNX', e.info, 'born', latest)
  redis.call('HSET', e.info, 'awake', 1)
  project('woke', args[1], now(args[2]))
  return 1
end)

-- add_place: add a place that another service wrote viewing sessions for.
-- KEYS the event's 12   ARGV event, now, place, session ('' for none)   Reply 1 if it is new
command('add_place', function(keys, args)
  local e = read_event(keys)
  if redis.call('HSETNX', e.rooms, args[3], '') == 0 then return 0 end
  if args[4] ~= '' then redis.call('SADD', e.sessions, args[4]) end
  redis.call('HSETNX', e.info, 'born', now(args[2]))
  redis.call('HSET', e.info, 'awake', 1)
  project('woke', args[1], now(args[2]))
  return 1
end)

-- sweep: finish a batch of viewing sessions at a place whose window has passed, oldest first.
-- KEYS the event's 14   ARGV place, position, now, min window, batch, event
-- Reply {number read, position, unreadable, viewer, start, end, …}; the viewers are those that Plaza does not count at
-- the place: their viewing sessions are in SQL already, or another service's
command('sweep', function(keys, args)
  local e, place, at, batch = read_event(keys), args[1], now(args[3]), tonumber(args[5])
  e.event = args[6]
  -- A second of grace, because the clocks of two processes can differ.
  local limit = at - window_at(read_info(e).window, at, tonumber(args[4])) - 1000
  local first = index_after(e.ends, args[2])
  local found = redis.call('ZRANGE', e.ends, first, first + batch - 1, 'WITHSCORES')
  local reply = {0, args[2], 0}
  for i = 1, #found, 2 do
    local user, stop, start = found[i], to_ms(found[i + 1]), score_ms(e.starts, found[i])
    if tonumber(found[i + 1]) > limit then break end
    reply[1], reply[2] = reply[1] + 1, found[i + 1] .. ' ' .. user
    local entry = redis.call('HGET', e.viewers, user)
    local open = open_places(entry)
    local position = index_of(open, place)
    if position then
      finish_viewing(e, user, place, start, stop)
      table.remove(open, position)
      write_viewer(e, user, first_line(entry), open, place, entry)
    elseif not start or not stop then
      reply[3] = reply[3] + 1
    elseif stop >= start then
      for _, value in ipairs({user, text(start), text(stop)}) do reply[#reply + 1] = value end
    end
  end
  return reply
end)

-- finish_external: finish viewing sessions of another service, which are not in SQL.
-- KEYS the event's 12   ARGV event, place, viewer, start, end, …
command('finish_external', function(keys, args)
  local e = read_event(keys)
  e.event = args[1]
  for i = 3, #args, 3 do
    if finish_viewing(e, args[i], args[2], args[i + 1], args[i + 2]) then redis.call('HINCRBY', e.info, 'logins', 1) end
  end
end)

-- save_sweep_position: store up to where the viewing sessions of a place were swept.
-- KEYS rooms   ARGV place, position
command('save_sweep_position', function(keys, args)
  if redis.call('HEXISTS', keys[1], args[1]) == 1 then redis.call('HSET', keys[1], args[1], args[2]) end
end)

-- delete_written_records: delete records that are in SQL now.   KEYS records   ARGV field, value, field, value …
command('delete_written_records', function(keys, args)
  for i = 1, #args, 2 do
    if redis.call('HGET', keys[1], args[i]) == args[i + 1] then redis.call('HDEL', keys[1], args[i]) end
  end
end)

-- mark_silent: mark an event as silent if everything of it is recorded. The next heartbeat wakes it.
-- KEYS the event's 12   ARGV now, event   Reply 1 if it is silent
command('mark_silent', function(keys, args)
  local e = read_event(keys)
  local busy = latest_beat(e) > now(args[1]) - AWAY_MS - 1000
    or redis.call('ZCARD', e.finished) > 0
    or redis.call('HLEN', e.records) > 0
    or redis.call('HEXISTS', e.info, 'slot') == 1
  if busy then return 0 end
  if redis.call('HDEL', e.info, 'awake') == 1 then
    local left = redis.call('ZREVRANGEBYSCORE', e.left, '(' .. text(SCORE_SHIFT), 0, 'WITHSCORES', 'LIMIT', 0, 1)
    local peak = tonumber(redis.call('HGET', e.info, 'peak') or 0)
    emit('event.ended', args[2], {
      event = args[2], ended_at = math.max(latest_beat(e), to_ms(left[2]) or 0), max_concurrent = peak,
      attended = redis.call('SCARD', e.attended),
    })
  end
  return 1
end)

-- unlist: remove a silent event from the list, unless it woke again.   KEYS awake   ARGV event, listed at
command('unlist', function(keys, args)
  if redis.call('ZSCORE', keys[1], args[1]) == args[2] then redis.call('ZREM', keys[1], args[1]) end
end)

-- Removes a viewer from an audience.
local function remove_viewer(a, user, entry)
  uncount_viewer(a, user, entry)
  redis.call('ZREM', a.heartbeat, user)
  redis.call('SREM', a.attended, user)
end

-- delete_viewer: remove a user from an audience, with the statistics members that the caller found.
-- KEYS the audience's 9   ARGV viewer, statistics member …
command('delete_viewer', function(keys, args)
  local a = read_audience(keys, 1)
  local beat = score_ms(a.heartbeat, args[1])
  local details = beat and find_details(a, args[1], beat)
  if details then redis.call('ZREM', a.statistics, args[1] .. details) end
  remove_viewer(a, args[1], redis.call('HGET', a.viewers, args[1]))
  for i = 2, #args do redis.call('ZREM', a.statistics, args[i]) end
end)

-- rename: give a user's data in an audience another name. If both names are there, the one seen last stays.
-- KEYS the audience's 9   ARGV 'event' or 'session', old, new, statistics member of the old name …
command('rename', function(keys, args)
  local a, old, new = read_audience(keys, 1, args[1]), args[2], args[3]
  read_info(a)
  follow_viewer(a, old, redis.call('ZSCORE', a.heartbeat, old))
  local entry, other = unpack(redis.call('HMGET', a.viewers, old, new))
  local attended = redis.call('SISMEMBER', a.attended, old) == 1
  local beat, left = score_ms(a.heartbeat, old) or 0, redis.call('ZSCORE', a.left, old)
  local details, other_beat = find_details(a, old, beat), score_ms(a.heartbeat, new) or 0
  remove_viewer(a, old, entry)
  if details then redis.call('ZREM', a.statistics, old .. details) end
  for i = 4, #args do redis.call('ZREM', a.statistics, args[i]) end
  if attended then redis.call('SADD', a.attended, new) end
  if not entry or (other and other_beat >= beat) then return end
  local replaced = other and find_details(a, new, other_beat)
  if replaced then redis.call('ZREM', a.statistics, new .. replaced) end
  remove_viewer(a, new, other)
  redis.call('ZADD', a.heartbeat, beat, new)
  if details then redis.call('ZADD', a.statistics, beat, new .. details) end
  recount(a, nil, counted_class(entry))
  if left then redis.call('ZADD', a.left, left, new) end
  redis.call('SADD', a.attended, new)
  redis.call('HSET', a.viewers, new, entry)
end)

-- rename_place: give a user's viewing session at a place another name.   KEYS starts, ends   ARGV old, new
command('rename_place', function(keys, args)
  local old, new = args[1], args[2]
  local start, stop = redis.call('ZSCORE', keys[1], old), redis.call('ZSCORE', keys[2], old)
  local other = redis.call('ZSCORE', keys[2], new)
  if not start then return end
  stop = stop or start
  if not other or tonumber(stop) > tonumber(other) then
    redis.call('ZADD', keys[1], start, new)
    redis.call('ZADD', keys[2], stop, new)
  end
  redis.call('ZREM', keys[1], old)
  redis.call('ZREM', keys[2], old)
end)

-- delete_places: remove places and their viewing sessions.   KEYS the event's 12   ARGV event, place …
command('delete_places', function(keys, args)
  local e, event = read_event(keys), args[1]
  for i = 2, #args do
    redis.call('UNLINK', start_key(event, args[i]), end_key(event, args[i]))
    redis.call('HDEL', e.rooms, args[i])
  end
end)

-- delete_session: remove a session's audience.   KEYS the session's 9   ARGV event   Reply 1 if it was the event's
command('delete_session', function(keys, args)
  if redis.call('HGET', keys[4], 'event') ~= args[1] then return 0 end
  redis.call('UNLINK', unpack(keys))
  return 1
end)

-- Removes a group from the statistics member of a viewer: what it says would be counted again.
-- delete_group: remove a group from an audience, and from the classes of a batch of viewers.
-- KEYS the audience's 9   ARGV group, cursor, batch   Reply {1 if anything had it, next cursor ('0' at the end)}
command('delete_group', function(keys, args)
  local a, group = read_audience(keys, 1), args[1]
  local removed = redis.call('HDEL', a.group_names, group)
  local cursor, found = unpack(redis.call('HSCAN', a.viewers, args[2], 'COUNT', args[3]))
  local deltas, entries = {}, {}
  for i = 1, #found, 2 do
    local user, entry = found[i], found[i + 1]
    local counted, class = parse_entry(entry)
    local groups = split(class, '#')
    local country, position = table.remove(groups, 1), index_of(groups, group)
    if position then
      table.remove(groups, position)
      local new = class_of(country, groups)
      if counted then
        add_class(deltas, class, -1)
        add_class(deltas, new, 1)
      end
      append_pair(entries, user, string.sub(entry, 1, 1) .. new .. (string.match(entry, '\n.*') or ''))
    end
  end
  if entries[1] then
    redis.call('HSET', a.viewers, unpack(entries))
    write_counts(a, deltas)
    removed = 1
  end
  return {removed, cursor}
end)

-- delete_group_in_statistics: remove a group from a batch of statistics members, also from those of other services. No
-- viewer has it in their class any more, so their heartbeats do not write it again.
-- KEYS the audience's 9   ARGV and reply as delete_group
command('delete_group_in_statistics', function(keys, args)
  local a, group = read_audience(keys, 1), args[1]
  local cursor, found = unpack(redis.call('ZSCAN', a.statistics, args[2], 'COUNT', args[3]))
  local old, new = {}, {}
  for i = 1, #found, 2 do
    local parts, position = split(found[i], '#'), nil -- user, address, group …, country
    for at = 3, #parts - 1 do
      if parts[at] == group then position = at end
    end
    if position then
      table.remove(parts, position)
      if #parts == 3 then table.insert(parts, 3, '') end -- no group: an empty part
      old[#old + 1] = found[i]
      append_pair(new, found[i + 1], table.concat(parts, '#'))
    end
  end
  if not old[1] then return {0, cursor} end
  redis.call('ZREM', a.statistics, unpack(old))
  redis.call('ZADD', a.statistics, 'GT', unpack(new))
  return {1, cursor}
end)

local function require_silence(a, before)
  if latest_beat(a) >= before then fail('still_live', 'A viewer has come back. Purge later.') end
end

-- purge_places: remove the raw viewing sessions of some places of a silent event; they are in SQL.
-- KEYS the event's 12   ARGV event, silent since, place …
command('purge_places', function(keys, args)
  local e, event = read_event(keys), args[1]
  require_silence(e, tonumber(args[2]))
  for i = 3, #args do
    redis.call('UNLINK', start_key(event, args[i]), end_key(event, args[i]))
    redis.call('HDEL', e.rooms, args[i])
  end
end)

-- purge: remove the raw keys of an audience; what an admin declared stays.
-- KEYS the audience's 9   ARGV silent since, 1 to keep what was declared
command('purge', function(keys, args)
  local a = read_audience(keys, 1)
  require_silence(a, tonumber(args[1]))
  local kept = {'declared', 'event', unpack(DECLARED_FIELDS)}
  local declared = redis.call('HMGET', a.info, unpack(kept))
  redis.call('UNLINK', unpack(keys))
  if args[2] ~= '1' then return end
  for i, name in ipairs(kept) do
    if declared[i] then redis.call('HSET', a.info, name, declared[i]) end
  end
end)
