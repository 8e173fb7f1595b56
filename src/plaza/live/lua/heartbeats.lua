-- What viewers do and admins declare. `audience.lua` says what an audience is.
--
-- On one server a beat changes the event's audience and the session's in one function. On a cluster the session is
-- another owner, and its part is a call of its own, made right after: a beat needs no note for a worker to finish it,
-- since one that gets lost is nothing but a viewer who beats again in 30 s.

local function start_key(v, room)
  local parts = split(room, '#')
  if parts[2] then return key.session_viewing_start(v.event, parts[1], parts[2]) end
  return key.viewing_start(v.event, parts[1])
end

local function end_key(v, room)
  local parts = split(room, '#')
  if parts[2] then return key.session_viewing_end(v.event, parts[1], parts[2]) end
  return key.viewing_end(v.event, parts[1])
end

-- The event's note of a viewer: the rest of the member, and the places where they are watching, latest first.
local function read_viewer(e, user)
  local note = redis.call('HGET', e.viewers, user)
  if not note then return nil, {}, nil end
  local lines = split(note, '\n')
  local rest = table.remove(lines, 1)
  if lines[1] and string.sub(lines[1], 1, 1) == '#' then return rest, {}, note end
  return rest, lines, note
end

local function write_viewer(e, user, rest, open, last_room, before)
  local places = #open > 0 and table.concat(open, '\n') or '#' .. last_room
  local note = rest .. '\n' .. places
  if note ~= before then redis.call('HSET', e.viewers, user, note) end
end

-- A viewing session is over; the worker takes it to SQL.
local function finish(e, user, room, start, stop)
  if start and stop then redis.call('ZADD', e.finished, stop, user .. '#' .. start .. '#' .. room) end
end

local function require_place(e, v, info)
  if v.only_declared and not info.declared then
    fail('event_undeclared', 'This event was not declared.', {field = 'event'})
  end
  if redis.call('HEXISTS', e.rooms, v.room) == 1 then return end
  if redis.call('HLEN', e.rooms) >= MOST_ROOMS then
    fail('too_many_places', 'This event has too many locations.', {field = 'location'})
  end
  if v.session ~= '' and redis.call('SCARD', e.sessions) >= MOST_SESSIONS
    and redis.call('SISMEMBER', e.sessions, v.session) == 0 then
    fail('too_many_places', 'This event has too many sessions.', {field = 'session_id'})
  end
end

local function require_owner(owner, event)
  if owner and owner ~= event then
    fail('session_of_another_event', 'This session belongs to another event.', {field = 'session_id'})
  end
end

-- Begins a viewing session at the place, or goes on with the one that is under way.
local function view(e, v, open, window)
  local place = index_of(open, v.room)
  if place then
    local stop = tonumber(redis.call('ZSCORE', e.ends, v.user) or 0)
    if place > 1 then table.insert(open, 1, table.remove(open, place)) end
    if v.at - stop <= window then
      if v.at > stop then redis.call('ZADD', e.ends, v.at, v.user) end
      return
    end
    finish(e, v.user, v.room, redis.call('ZSCORE', e.starts, v.user), stop)
  else
    table.insert(open, 1, v.room)
    redis.call('ZREM', e.left, v.user)
    redis.call('HSETNX', e.rooms, v.room, '')
    if v.session ~= '' then redis.call('SADD', e.sessions, v.session) end
  end
  redis.call('ZADD', e.starts, v.at, v.user)
  redis.call('ZADD', e.ends, v.at, v.user)
  redis.call('HINCRBY', e.info, 'logins', 1)
  if #open > MOST_OPEN then
    local room = table.remove(open)
    finish(e, v.user, room, redis.call('ZSCORE', start_key(v, room), v.user),
      redis.call('ZSCORE', end_key(v, room), v.user))
  end
end

-- Written down that the event has something to record; the worker takes it off the list again.
projection('woke', function(event, at)
  return {'ZADD', key.live_awake(), 'GT', at, event}
end, 1)

local function event_beat(e, v)
  local info, fields = read_info(e), {}
  local before, open, note = read_viewer(e, v.user)
  if not index_of(open, v.room) then require_place(e, v, info) end
  info.least = v.least
  close_slot(e, info, v.at)
  open_slot(fields, info, v.at)
  local window = stretch(fields, info, v.at, v.interval, v.least)
  view(e, v, open, window)
  local rest = see(e, v, before)
  write_viewer(e, v.user, rest, open, v.room, note)
  local alive = measure(fields, e, info, v.at, window)
  if not info.awake then
    put(fields, 'awake', 1)
    project('woke', v.event, v.at)
  end
  write_info(e, fields)
  return alive
end

local function session_beat(s, v, info)
  local fields = {}
  if not info.event then fields = {'event', v.event} end
  info.least = v.least
  close_slot(s, info, v.at)
  open_slot(fields, info, v.at)
  local window = stretch(fields, info, v.at, v.interval, v.least)
  local note = redis.call('HGET', s.viewers, v.user)
  local before = note and split(note, '\n')[1] or nil
  if note and note ~= before then redis.call('ZREM', s.left, v.user) end
  local rest = see(s, v, before)
  if rest ~= note then redis.call('HSET', s.viewers, v.user, rest) end
  local alive = measure(fields, s, info, v.at, window)
  write_info(s, fields)
  return alive
end

-- What a beat says: ARGV event, session ('' for none), location, user, now, address, country, groups (joined by '#'),
-- whether the groups are given, interval, least window, whether only declared events are taken.
local function viewer_of(args)
  local session, location = args[2], args[3]
  return {
    event = args[1],
    session = session,
    room = session ~= '' and session .. '#' .. location or location,
    user = args[4],
    at = now(args[5]),
    address = args[6],
    country = args[7],
    groups = args[8] ~= '' and split(args[8], '#') or {},
    most_groups = args[9] == '1' and MOST_GIVEN_GROUPS or MOST_SAID_GROUPS,
    interval = tonumber(args[10]),
    least = tonumber(args[11]),
    only_declared = args[12] == '1',
  }
end

-- beat: a viewer is there. Everything of the event; on one server everything of the session too.
-- KEYS the event's 15, the session's 10 if it has one and this is one server   ARGV see viewer_of
-- Reply {alive, session_alive or -1}
command('beat', function(keys, args)
  local v = viewer_of(args)
  if not keys[16] then return {event_beat(whole_event(keys), v), -1} end
  local s = audience(keys, 16)
  local info = read_info(s)
  require_owner(info.event, v.event)
  local alive = event_beat(whole_event(keys), v)
  return {alive, session_beat(s, v, info)}
end)

-- session_beat: the session's part of a beat, on a cluster.   KEYS the session's 10   ARGV as beat   Reply alive
command('session_beat', function(keys, args)
  local v, s = viewer_of(args), audience(keys, 1)
  local info = read_info(s)
  require_owner(info.event, v.event)
  return session_beat(s, v, info)
end)

local function leave_session(s, user, at, least)
  local note = redis.call('HGET', s.viewers, user)
  if not note or string.find(note, '\n', 1, true) then return end
  local info = read_info(s)
  info.least = least
  if close_slot(s, info, at) then redis.call('HDEL', s.info, 'slot') end
  lower(s, user, note, at, window_now(info.window, at, least))
  redis.call('HSET', s.viewers, user, note .. '\n#')
end

-- The open places a viewer was seen at within the window. At the others they stopped watching without a word.
local function still_open(e, v, open, window)
  local there = {}
  for _, room in ipairs(open) do
    local stop = tonumber(redis.call('ZSCORE', end_key(v, room), v.user) or 0)
    if v.at - stop <= window then
      there[#there + 1] = room
    else
      finish(e, v.user, room, redis.call('ZSCORE', start_key(v, room), v.user), stop)
    end
  end
  return there
end

local function in_session(rooms, session)
  for _, room in ipairs(rooms) do
    if string.sub(room, 1, #session + 1) == session .. '#' then return true end
  end
  return false
end

-- leave: a viewer's viewing session at a place ends now, or ended when they were last seen, if that is too long ago.
-- They are gone from the event unless they are watching at another place too.
-- KEYS as beat   ARGV event, session, location, user, now, least window   Reply {ended, gone from the session}
command('leave', function(keys, args)
  local e, v = whole_event(keys), {event = args[1], session = args[2], user = args[4], at = now(args[5])}
  local least = tonumber(args[6])
  v.room = v.session ~= '' and v.session .. '#' .. args[3] or args[3]
  local rest, open, note = read_viewer(e, v.user)
  local place = index_of(open, v.room)
  if not place then return {0, 0} end
  local info = read_info(e)
  info.least = least
  if close_slot(e, info, v.at) then redis.call('HDEL', e.info, 'slot') end
  local window = window_now(info.window, v.at, least)
  local stop = tonumber(redis.call('ZSCORE', e.ends, v.user) or 0)
  if v.at > stop and v.at - stop <= window then
    stop = v.at
    redis.call('ZADD', e.ends, stop, v.user)
  end
  finish(e, v.user, v.room, redis.call('ZSCORE', e.starts, v.user), stop)
  table.remove(open, place)
  local there = still_open(e, v, open, window)
  write_viewer(e, v.user, rest, there, v.room, note)
  if #there == 0 then lower(e, v.user, rest, v.at, window) end
  local gone = v.session ~= '' and not in_session(there, v.session)
  if gone and keys[16] then leave_session(audience(keys, 16), v.user, v.at, least) end
  return {1, gone and 1 or 0}
end)

-- session_leave: the session's part of leaving, on a cluster.   KEYS the session's 10   ARGV user, now, least window
command('session_leave', function(keys, args)
  leave_session(audience(keys, 1), args[1], now(args[2]), tonumber(args[3]))
end)

-- declare: an admin makes an event known.
-- KEYS info, sessions; on one server also each session's info   ARGV event, now, title ('=…', '' to keep), session …
-- Reply {title or false, sessions}
command('declare', function(keys, args)
  local event, at, title = args[1], now(args[2]), args[3]
  local fresh = 0
  for i = 4, #args do
    if keys[i - 1] then require_owner(redis.call('HGET', keys[i - 1], 'event'), event) end
    fresh = fresh + 1 - redis.call('SISMEMBER', keys[2], args[i])
  end
  if redis.call('SCARD', keys[2]) + fresh > MOST_SESSIONS then
    fail('too_many_places', 'This event has too many sessions.', {field = 'sessions'})
  end
  redis.call('HSET', keys[1], 'declared', 1)
  if title ~= '' then redis.call('HSET', keys[1], 'title', string.sub(title, 2)) end
  for i = 4, #args do
    redis.call('SADD', keys[2], args[i])
    if keys[i - 1] then redis.call('HSET', keys[i - 1], 'event', event) end
  end
  project('known', event, at)
  return {redis.call('HGET', keys[1], 'title'), redis.call('SMEMBERS', keys[2])}
end)

projection('known', function(event, at)
  return {'ZADD', key.live_events(), 'GT', at, event}
end, 1)

-- claim: a session belongs to an event, on a cluster.   KEYS info   ARGV event   Reply whether that is new
command('claim', function(keys, args)
  local owner = redis.call('HGET', keys[1], 'event')
  require_owner(owner, args[1])
  if owner then return 0 end
  redis.call('HSET', keys[1], 'event', args[1])
  return 1
end)

-- unclaim: what the session was claimed for was refused; nobody has been there yet.   KEYS info   ARGV event
command('unclaim', function(keys, args)
  local owner, born = unpack(redis.call('HMGET', keys[1], 'event', 'born'))
  if owner == args[1] and not born then redis.call('HDEL', keys[1], 'event') end
end)
