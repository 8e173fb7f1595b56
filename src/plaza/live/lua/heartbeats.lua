-- Commands of viewers and admins: heartbeat, leave, declare. audience.lua describes the data.
--
-- On one server a heartbeat changes the event's audience and the session's in one function. On a cluster the session's
-- keys belong to another node, and a second call changes them. A heartbeat leaves no outbox entry: if the second call
-- is lost, the viewer sends the next heartbeat in 30 s.

local function start_key(event, place)
  local parts = split(place, '#')
  if parts[2] then return key.session_viewing_start(event, parts[1], parts[2]) end
  return key.viewing_start(event, parts[1])
end

local function end_key(event, place)
  local parts = split(place, '#')
  if parts[2] then return key.session_viewing_end(event, parts[1], parts[2]) end
  return key.viewing_end(event, parts[1])
end

-- Returns a viewer's details, their open places (latest first) and the whole entry; nil, {} and nil if there is none.
local function read_viewer(e, user)
  local entry = redis.call('HGET', e.viewers, user)
  if not entry then return nil, {}, nil end
  local lines = split(entry, '\n')
  local details = table.remove(lines, 1)
  if lines[1] and string.sub(lines[1], 1, 1) == '#' then return details, {}, entry end
  return details, lines, entry
end

local function write_viewer(e, user, details, open, last_place, before)
  local places = #open > 0 and table.concat(open, '\n') or '#' .. last_place
  local entry = details .. '\n' .. places
  if entry ~= before then redis.call('HSET', e.viewers, user, entry) end
end

-- A viewing session that a viewer ended must not continue with their next heartbeat, like one of another service.
local function ended_mark(event, user, place)
  return key.event_ended(event, redis.sha1hex(user .. '#' .. place))
end

local function mark_ended(event, user, place, stop, window)
  redis.call('SET', ended_mark(event, user, place), text(math.floor(stop)), 'PX', text(math.floor(window)))
end

local function is_ended(event, user, place, start)
  local ended = tonumber(redis.call('GET', ended_mark(event, user, place)) or '')
  return ended ~= nil and ended >= start
end

-- Emits 'viewing.started', or 'viewing.ended' if it has an end. `e.event` and `e.origin` are set by the command.
local function emit_viewing(type, e, user, place, start, stop)
  local parts = split(place, '#')
  local data = {event = e.event, viewer = user, location = parts[2] or parts[1], started_at = start, ended_at = stop}
  if parts[2] then data.session = parts[1] end
  emit(type, e.event, data, e.origin)
end

-- Adds an ended viewing session to those that the worker writes to SQL. Returns whether it was not there yet.
local function finish_viewing(e, user, place, start, stop)
  start, stop = to_ms(start), to_ms(stop)
  if not start then return false end
  stop = math.max(start, stop or start)
  if redis.call('ZADD', e.finished, stop, user .. '#' .. text(start) .. '#' .. place) == 0 then return false end
  emit_viewing('viewing.ended', e, user, place, start, stop)
  return true
end

-- Why a heartbeat may not create an undeclared event: the ARGV `refusal` of `beat`.
local REFUSALS = {
  bytes = {'new_event_too_large', 'The ids and groups of a new event or place have at most ' .. MAX_NEW_EVENT_BYTES .. ' bytes.'},
  client = {'too_many_new_events', 'Too many new events from this address. Use an existing event or wait.'},
  total = {'too_many_events', 'There are too many undeclared events. Ask an admin to declare this one.'},
}

local function require_event(v, info)
  if info.declared then return end
  if v.only_declared then
    fail('event_undeclared', 'This event is not declared. Ask an admin to declare it.', {field = 'event'})
  end
  if not info.born and v.refusal ~= '' then
    local code, detail = unpack(REFUSALS[v.refusal])
    fail(code, detail, {field = 'event'})
  end
end

-- A place is stored with several keys, so one address creates few of them, on declared events too. On an undeclared
-- event its names are limited in bytes.
local function require_new_place(v, info)
  if v.place_refusal ~= '' then
    fail('too_many_new_places', 'Too many new sessions and locations from this address. Use existing ones or wait.',
      {field = v.session ~= '' and 'session_id' or 'location'})
  end
  if not info.declared and v.refusal == 'bytes' then
    local code, detail = unpack(REFUSALS.bytes)
    fail(code, detail, {field = 'event'})
  end
end

local function require_place(e, v, info)
  require_event(v, info)
  local known_session = v.session == '' or redis.call('SISMEMBER', e.sessions, v.session) == 1
  if info.declared and not known_session then
    fail('session_undeclared', 'This session is not declared. Ask an admin to declare it.', {field = 'session_id'})
  end
  if not known_session and redis.call('SCARD', e.sessions) >= MAX_UNDECLARED_SESSIONS then
    fail('too_many_places', 'This event has too many sessions. Use one that exists.', {field = 'session_id'})
  end
  local max_places = info.declared and MAX_PLACES or MAX_UNDECLARED_PLACES
  if redis.call('HEXISTS', e.rooms, v.place) == 1 then return end
  if redis.call('HLEN', e.rooms) >= max_places then
    fail('too_many_places', 'This event has too many locations. Use one that exists.', {field = 'location'})
  end
  require_new_place(v, info)
end

local function require_owner(owner, event)
  if owner and owner ~= event then
    fail('session_of_another_event', 'This session belongs to another event.', {field = 'session_id'})
  end
end

-- The end of a viewer's viewing session at a place. A service may write an end only when the session is over: until
-- then the last heartbeat counts.
local function viewing_end(e, user, start)
  local stop = score_ms(e.ends, user)
  if stop and stop >= start then return stop end
  return math.max(start, score_ms(e.heartbeat, user) or 0)
end

-- Another service's viewing session at this place, when Plaza sees the viewer there for the first time. It continues if
-- it is still under way; otherwise it is finished before it is overwritten. Returns whether it continues.
local function take_over_viewing(e, v, window)
  local start = score_ms(e.starts, v.user)
  if not start then return false end
  local stop = viewing_end(e, v.user, start)
  if v.at - stop <= window and not is_ended(v.event, v.user, v.place, start) then return true end
  finish_viewing(e, v.user, v.place, start, stop)
  return false
end

-- Begins a viewing session at the place, or continues the one under way.
local function continue_viewing(e, v, open, window)
  local position, continues = index_of(open, v.place), false
  if position then
    local stop = score_ms(e.ends, v.user) or 0
    if position > 1 then table.insert(open, 1, table.remove(open, position)) end
    if v.at - stop <= window then
      if v.at > stop then redis.call('ZADD', e.ends, v.at, v.user) end
      return
    end
    finish_viewing(e, v.user, v.place, redis.call('ZSCORE', e.starts, v.user), stop)
  else
    v.opened = true
    continues = take_over_viewing(e, v, window)
    table.insert(open, 1, v.place)
    redis.call('ZREM', e.left, v.user)
    v.created_place = redis.call('HSETNX', e.rooms, v.place, '') == 1
    if v.session ~= '' then redis.call('SADD', e.sessions, v.session) end
  end
  if not continues then redis.call('ZADD', e.starts, v.at, v.user) end
  emit_viewing('viewing.started', e, v.user, v.place, continues and score_ms(e.starts, v.user) or v.at)
  redis.call('ZADD', e.ends, v.at, v.user)
  redis.call('HINCRBY', e.info, 'logins', 1)
  if #open > MAX_OPEN_PLACES then
    local place = table.remove(open)
    local stop = score_ms(end_key(v.event, place), v.user) or 0
    finish_viewing(e, v.user, place, redis.call('ZSCORE', start_key(v.event, place), v.user), stop)
    mark_ended(v.event, v.user, place, stop, window)
  end
end

-- Lists the event for the worker, which removes it again when it is silent and recorded.
projection('woke', function(event, at)
  return {'ZADD', key.live_awake(), 'GT', at, event}
end, 1)

local function event_heartbeat(e, v)
  local info, fields = read_info(e), {}
  local old_details, open, entry = read_viewer(e, v.user)
  if not index_of(open, v.place) then require_place(e, v, info) end
  -- On a declared event viewers can claim only groups that exist.
  if info.declared and not v.has_token_groups then v.max_groups = 0 end
  info.min_window = v.min_window
  close_slot(e, info, v.at)
  open_slot(fields, info, v.at)
  local window = extend_window(fields, info, v.at, v.interval, v.min_window)
  continue_viewing(e, v, open, window)
  local details, groups = write_heartbeat(e, v, old_details)
  write_viewer(e, v.user, details, open, v.place, entry)
  local alive = measure_peak(fields, e, info, v.at, window)
  if not info.awake then
    append_pair(fields, 'awake', 1)
    project('woke', v.event, v.at)
  end
  local is_new = not info.born and not info.declared
  if is_new then project('known', v.event, v.at) end
  write_info(e, fields)
  -- The session counts the same groups.
  v.groups, v.max_groups = groups, MAX_GROUPS
  return alive, is_new and NEW_EVENT or v.created_place and NEW_PLACE or 0
end

local function session_heartbeat(s, v, info)
  local fields = {}
  if not info.event then fields = {'event', v.event} end
  info.min_window = v.min_window
  close_slot(s, info, v.at)
  open_slot(fields, info, v.at)
  local window = extend_window(fields, info, v.at, v.interval, v.min_window)
  local entry = redis.call('HGET', s.viewers, v.user)
  local old_details = entry and first_line(entry) or nil
  if entry and entry ~= old_details then redis.call('ZREM', s.left, v.user) end
  local details = write_heartbeat(s, v, old_details)
  if details ~= entry then redis.call('HSET', s.viewers, v.user, details) end
  local alive = measure_peak(fields, s, info, v.at, window)
  write_info(s, fields)
  return alive
end

-- A heartbeat's ARGV: event, session ('' for none), location, user, now, address, country, groups (joined by '#'),
-- 1 if the groups come from the token, interval, min window, 1 if only declared events are accepted, why the event must
-- not be new (see REFUSALS; '' if it may), the origin of events ('' for none), why the place must not be new.
local function read_heartbeat(args)
  local session, location = args[2], args[3]
  return {
    event = args[1],
    session = session,
    place = session ~= '' and session .. '#' .. location or location,
    user = args[4],
    at = now(args[5]),
    address = args[6],
    country = args[7],
    groups = args[8] ~= '' and split(args[8], '#') or {},
    has_token_groups = args[9] == '1',
    max_groups = args[9] == '1' and MAX_GROUPS or MAX_CLAIMED_GROUPS,
    interval = tonumber(args[10]),
    min_window = tonumber(args[11]),
    only_declared = args[12] == '1',
    refusal = args[13],
    origin = args[14] ~= '' and args[14] or nil,
    place_refusal = args[15],
  }
end

-- beat: write a viewer's heartbeat, for the event and on one server also for the session.
-- KEYS the event's 15; on one server with a session also its 10   ARGV see read_heartbeat
-- Reply {alive, session_alive or -1, NEW_EVENT or NEW_PLACE or 0, groups that count (joined by '#')}
command('beat', function(keys, args)
  local v = read_heartbeat(args)
  local s = keys[16] and read_audience(keys, 16, 'session')
  local info = s and read_info(s)
  if s then require_owner(info.event, v.event) end
  local e = read_event(keys)
  e.event, e.origin = v.event, v.origin
  local alive, created = event_heartbeat(e, v)
  return {alive, s and session_heartbeat(s, v, info) or -1, created, table.concat(v.groups, '#')}
end)

-- session_beat: the session's part of a heartbeat, on a cluster.   KEYS the session's 10   ARGV as beat   Reply alive
command('session_beat', function(keys, args)
  local v, s = read_heartbeat(args), read_audience(keys, 1, 'session')
  local info = read_info(s)
  require_owner(info.event, v.event)
  return session_heartbeat(s, v, info)
end)

local function leave_session(s, user, at, min_window)
  local entry = redis.call('HGET', s.viewers, user)
  if not entry or string.find(entry, '\n', 1, true) then return end
  local info = read_info(s)
  info.min_window = min_window
  if close_slot(s, info, at) then redis.call('HDEL', s.info, 'slot') end
  lower_score(s, user, entry, at, window_at(info.window, at, min_window))
  redis.call('HSET', s.viewers, user, entry .. '\n#')
end

-- Returns the open places with a heartbeat in the window. At the others the viewing session has ended silently.
local function places_in_window(e, v, open, window)
  local still_open = {}
  for _, place in ipairs(open) do
    local stop = score_ms(end_key(v.event, place), v.user) or 0
    if v.at - stop <= window then
      still_open[#still_open + 1] = place
    else
      finish_viewing(e, v.user, place, redis.call('ZSCORE', start_key(v.event, place), v.user), stop)
    end
  end
  return still_open
end

local function has_session(places, session)
  for _, place in ipairs(places) do
    if string.sub(place, 1, #session + 1) == session .. '#' then return true end
  end
  return false
end

-- leave: end a viewer's viewing session at a place now, or at their last heartbeat if that is longer ago than the
-- window. They leave the event unless they watch at another place too.
-- KEYS as beat   ARGV event, session, location, user, now, min window, origin of the event ('' for none)
-- Reply {ended, left the session}
command('leave', function(keys, args)
  local e, v = read_event(keys), {event = args[1], session = args[2], user = args[4], at = now(args[5])}
  local min_window = tonumber(args[6])
  e.event, e.origin = v.event, args[7] ~= '' and args[7] or nil
  v.place = v.session ~= '' and v.session .. '#' .. args[3] or args[3]
  local details, open, entry = read_viewer(e, v.user)
  local position = index_of(open, v.place)
  if not position then return {0, 0} end
  local info = read_info(e)
  info.min_window = min_window
  if close_slot(e, info, v.at) then redis.call('HDEL', e.info, 'slot') end
  local window = window_at(info.window, v.at, min_window)
  local stop = score_ms(e.ends, v.user) or 0
  if v.at > stop and v.at - stop <= window then
    stop = v.at
    redis.call('ZADD', e.ends, stop, v.user)
  end
  finish_viewing(e, v.user, v.place, redis.call('ZSCORE', e.starts, v.user), stop)
  mark_ended(v.event, v.user, v.place, stop, window)
  table.remove(open, position)
  local still_open = places_in_window(e, v, open, window)
  write_viewer(e, v.user, details, still_open, v.place, entry)
  if #still_open == 0 then
    lower_score(e, v.user, details, v.at, window)
  else
    redis.call('ZADD', e.left, 'GT', SCORE_SHIFT + stop, v.user)
  end
  local left_session = v.session ~= '' and not has_session(still_open, v.session)
  if left_session and keys[16] then leave_session(read_audience(keys, 16, 'session'), v.user, v.at, min_window) end
  return {1, left_session and 1 or 0}
end)

-- session_leave: the session's part of leaving, on a cluster.   KEYS the session's 10   ARGV user, now, min window
command('session_leave', function(keys, args)
  leave_session(read_audience(keys, 1, 'session'), args[1], now(args[2]), tonumber(args[3]))
end)

-- declare: set an event's title and add sessions.
-- KEYS info, sessions; on one server also each session's info
-- ARGV event, now, title ('=…', '' to keep), origin of the event ('' for none), session …
-- Reply {title or false, sessions}
command('declare', function(keys, args)
  local event, at, title, origin = args[1], now(args[2]), args[3], args[4] ~= '' and args[4] or nil
  local new_sessions = 0
  for i = 5, #args do
    if keys[i - 2] then require_owner(redis.call('HGET', keys[i - 2], 'event'), event) end
    new_sessions = new_sessions + 1 - redis.call('SISMEMBER', keys[2], args[i])
  end
  if redis.call('SCARD', keys[2]) + new_sessions > MAX_SESSIONS then
    fail('too_many_places', 'This event has too many sessions. Declare fewer.', {field = 'sessions'})
  end
  local changed = redis.call('HSET', keys[1], 'declared', 1) == 1 or new_sessions > 0
  if title ~= '' then
    changed = changed or redis.call('HGET', keys[1], 'title') ~= string.sub(title, 2)
    redis.call('HSET', keys[1], 'title', string.sub(title, 2))
  end
  for i = 5, #args do
    redis.call('SADD', keys[2], args[i])
    if keys[i - 2] then redis.call('HSET', keys[i - 2], 'event', event, 'declared', 1) end
  end
  if changed then emit('event.declared', event, {event = event}, origin) end
  project('known', event, at)
  return {redis.call('HGET', keys[1], 'title'), redis.call('SMEMBERS', keys[2])}
end)

projection('known', function(event, at)
  return {'ZADD', key.live_events(), 'GT', at, event}
end, 1)

-- declare_groups: add groups that viewers can claim.   KEYS the event's 10   ARGV group …
command('declare_groups', function(keys, args)
  number_groups(read_audience(keys, 1, 'event'), args, MAX_GROUPS)
end)

-- claim: assign a session to an event, on a cluster.   KEYS info   ARGV event   Reply 1 if the session had no event
command('claim', function(keys, args)
  local owner = redis.call('HGET', keys[1], 'event')
  require_owner(owner, args[1])
  if owner then return 0 end
  redis.call('HSET', keys[1], 'event', args[1])
  return 1
end)

-- unclaim: undo a claim, because the operation that needed it was refused.   KEYS info   ARGV event
command('unclaim', function(keys, args)
  local owner, born = unpack(redis.call('HMGET', keys[1], 'event', 'born'))
  if owner == args[1] and not born then redis.call('HDEL', keys[1], 'event') end
end)
