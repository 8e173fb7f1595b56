-- Audiences of events and of their sessions: who is there, from where, since when.
--
-- An audience is ten keys, in this order (keys.py says what each holds):
--   heartbeat statistics attended info viewers countries groups group_names left records
-- The event has besides:  rooms sessions finished, and the start and end of the place that a verb is about.
--
-- On one server a beat changes the event's audience and the session's in one function. On a cluster the session is
-- another owner, and its part is a call of its own, made right after: a beat needs no note for a worker to finish it,
-- since one that gets lost is nothing but a viewer who beats again in 30 s (docs/decisions/live-heartbeats.md).
--
-- Times are Unix milliseconds. A beat that comes out of order moves nothing back: every score is the larger of the
-- two. Only leaving lowers one, to AWAY_MS before now, which no window reaches.

local SLOT_MS = 300000
-- One more than the longest window there is: 2 × 120 s + 5 s.
local AWAY_MS = 245001
-- Two numbers in one score: n × SHIFT + time. Times stay below 2^42 until the year 2109, and n below 2^11.
local SHIFT = 4398046511104
local MOST_ROOMS = 10000
local MOST_SESSIONS = 1000
-- Groups that viewers merely claim to be in could be anything; those in their tokens were given by someone.
local MOST_SAID_GROUPS = 200
local MOST_GIVEN_GROUPS = 1000
-- Places one viewer can be watching at once; the one left alone longest ends when there are more.
local MOST_OPEN = 20

local function audience(keys, first)
  return {
    heartbeat = keys[first],
    statistics = keys[first + 1],
    attended = keys[first + 2],
    info = keys[first + 3],
    viewers = keys[first + 4],
    countries = keys[first + 5],
    groups = keys[first + 6],
    group_names = keys[first + 7],
    left = keys[first + 8],
    records = keys[first + 9],
  }
end

-- An event's audience, and what only an event has.
local function whole_event(keys)
  local e = audience(keys, 1)
  e.rooms, e.sessions, e.finished, e.starts, e.ends = keys[11], keys[12], keys[13], keys[14], keys[15]
  return e
end

local function split(str, separator)
  local parts, from = {}, 1
  while true do
    local at = string.find(str, separator, from, true)
    if not at then break end
    parts[#parts + 1] = string.sub(str, from, at - 1)
    from = at + 1
  end
  parts[#parts + 1] = string.sub(str, from)
  return parts
end

local function index_of(list, value)
  for i, each in ipairs(list) do
    if each == value then return i end
  end
end

local function put(fields, name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end

local function country_number(code)
  return (string.byte(code, 1) - 65) * 26 + string.byte(code, 2) - 65 + 1
end

local function country_code(number)
  return string.char(65 + math.floor((number - 1) / 26), 65 + (number - 1) % 26)
end

-- The window to count with: what the setting says, or longer while somebody was told to beat less often.
local function window_now(window, window_until, at, least)
  if window and at <= tonumber(window_until) then return math.max(least, tonumber(window)) end
  return least
end

-- The window after telling a viewer to beat again in `interval`; writes it if it changes. It grows at once, but falls
-- only when everyone who was told the longer interval has had the time to beat by it.
local function stretch(fields, info, at, interval, least)
  local wanted = math.max(least, 2 * interval + 5000)
  local window = window_now(info.window, info.window_until, at, least)
  if wanted < window then return window end
  local settled = wanted == window and (wanted == least or tonumber(info.window_until) - at > wanted / 2)
  if not settled then
    put(fields, 'window', wanted)
    put(fields, 'window_until', at + wanted)
  end
  return wanted
end

local function read_info(a)
  local born, peak, slot, window, window_until, awake, declared, event =
    unpack(redis.call('HMGET', a.info, 'born', 'peak', 'slot', 'window', 'window_until', 'awake', 'declared', 'event'))
  return {
    born = born,
    peak = tonumber(peak or 0),
    slot = slot and tonumber(slot),
    window = window,
    window_until = window_until,
    awake = awake,
    declared = declared,
    event = event,
  }
end

-- Viewers by country and by group whose last beat lies between two moments.
local function by_country(a, from, to)
  local counts, n = {}, 0
  while true do
    local next = redis.call('ZRANGEBYSCORE', a.countries, n * SHIFT, '+inf', 'LIMIT', 0, 1, 'WITHSCORES')
    if not next[1] then return counts end
    n = math.floor(tonumber(next[2]) / SHIFT)
    local count = redis.call('ZCOUNT', a.countries, n * SHIFT + from, n * SHIFT + to)
    if count > 0 then counts[country_code(n)] = count end
    n = n + 1
  end
end

local function by_group(a, from, to)
  local counts, names = {}, redis.call('HGETALL', a.group_names)
  for i = 1, #names, 2 do
    local n = tonumber(names[i + 1])
    local count = redis.call('ZCOUNT', a.groups, n * SHIFT + from, n * SHIFT + to)
    if count > 0 then counts[names[i]] = count end
  end
  return counts
end

-- The record of a moment, as JSON.
local function statistics(a, from, to, timestamp)
  return cjson.encode({
    viewerCount = redis.call('ZCOUNT', a.heartbeat, from, to),
    timestamp = timestamp,
    countByUserGroup = by_group(a, from, to),
    countByViewingCountry = by_country(a, from, to),
  })
end

-- Five minutes are over: what was true at their end is written down, before anything of the next five changes it.
-- Nobody has beaten since, or this would have been done then; so the scores still say who was there.
local function close_slot(a, info, at)
  if info.slot and math.floor(at / SLOT_MS) > info.slot then
    local edge = (info.slot + 1) * SLOT_MS
    local window = window_now(info.window, info.window_until, edge, info.least)
    redis.call('HSET', a.records, edge, statistics(a, edge - window, edge, edge))
    return true
  end
end

local function open_slot(fields, info, at)
  if not info.born then put(fields, 'born', at) end
  local slot = math.floor(at / SLOT_MS)
  if not info.slot or slot > info.slot then
    put(fields, 'slot', slot)
  end
end

-- The numbers of a viewer's groups. A group that is one too many for the audience is left out.
local function number_groups(a, v)
  local names, numbers = {}, {}
  if #v.groups == 0 then return names, numbers end
  local known = redis.call('HMGET', a.group_names, unpack(v.groups))
  for i, name in ipairs(v.groups) do
    local number = known[i]
    if not number then
      local count = redis.call('HLEN', a.group_names)
      if count < v.most_groups then
        number = count + 1
        redis.call('HSET', a.group_names, name, number)
      end
    end
    if number then
      names[#names + 1], numbers[#numbers + 1] = name, tonumber(number)
    end
  end
  return names, numbers
end

-- What a viewer's statistics member says after the viewer: address, groups, country.
local function groups_of(rest)
  local parts = split(rest, '#')
  local groups = {}
  for i = 3, #parts - 1 do
    if parts[i] ~= '' then groups[#groups + 1] = parts[i] end
  end
  return groups, parts[#parts]
end

-- Takes the viewer's old member out, and the viewer out of groups that the new one has not.
local function replace(a, user, before, names)
  redis.call('ZREM', a.statistics, user .. before)
  for _, name in ipairs(groups_of(before)) do
    if not index_of(names, name) then
      local number = redis.call('HGET', a.group_names, name)
      if number then redis.call('ZREM', a.groups, number .. '#' .. user) end
    end
  end
end

-- Writes the score that a viewer has in `heartbeat` wherever else the audience counts viewers.
local function score(a, user, rest, numbers, country, value)
  redis.call('ZADD', a.statistics, value, user .. rest)
  redis.call('ZADD', a.countries, country_number(country) * SHIFT + value, user)
  for _, n in ipairs(numbers) do redis.call('ZADD', a.groups, n * SHIFT + value, n .. '#' .. user) end
end

-- A viewer is seen. `before` is the rest of the member so far, nil for a new viewer. Returns the rest as it is now.
local function see(a, v, before)
  local names, numbers = number_groups(a, v)
  local rest = '#' .. v.address .. '#' .. table.concat(names, '#') .. '#' .. v.country
  if not before then
    redis.call('SADD', a.attended, v.user)
  elseif before ~= rest then
    replace(a, v.user, before, names)
  end
  local seen = v.at
  if redis.call('ZADD', a.heartbeat, 'GT', 'CH', seen, v.user) == 0 then
    seen = tonumber(redis.call('ZSCORE', a.heartbeat, v.user)) -- out of order: what was later stays
  end
  score(a, v.user, rest, numbers, v.country, seen)
  return rest
end

-- A viewer goes: no longer alive in any window, but still among those who were there until now, or until they were last
-- seen if that is longer ago than the window.
local function lower(a, user, rest, at, window)
  local last = tonumber(redis.call('ZSCORE', a.heartbeat, user) or 0)
  local gone = at - last <= window and at or last
  local groups, country = groups_of(rest)
  local numbers = #groups > 0 and redis.call('HMGET', a.group_names, unpack(groups)) or {}
  for i = #numbers, 1, -1 do numbers[i] = tonumber(numbers[i]) end
  redis.call('ZADD', a.heartbeat, gone - AWAY_MS, user)
  score(a, user, rest, numbers, country, gone - AWAY_MS)
  redis.call('ZADD', a.left, gone, user)
end

-- Counts who is alive now and keeps the peak. A beat that comes late counts only those seen until its own time: fewer
-- than were there perhaps, but never more.
local function measure(fields, a, info, at, window)
  local alive = redis.call('ZCOUNT', a.heartbeat, at - window, at)
  if alive > info.peak then
    put(fields, 'peak', alive)
    put(fields, 'peak_at', at)
  end
  return alive
end

local function write_info(a, fields)
  if #fields > 0 then redis.call('HSET', a.info, unpack(fields)) end
end

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
    fail('event_undeclared', 'This event was not declared.', {field = 'eventId'})
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

-- Begins a viewing session at the place, or goes on with the one that is under way. Returns whether it began one.
local function view(e, v, open, window)
  local place = index_of(open, v.room)
  if place then
    local stop = tonumber(redis.call('ZSCORE', e.ends, v.user) or 0)
    if place > 1 then table.insert(open, 1, table.remove(open, place)) end
    if v.at - stop <= window then
      if v.at > stop then redis.call('ZADD', e.ends, v.at, v.user) end
      return false
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
  return true
end

-- Written down that the event has something to record; the worker takes it off the list again.
recipe('woke', function(event, at)
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
    effect('woke', v.event, v.at)
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
verb('beat', function(keys, args)
  local v = viewer_of(args)
  if not keys[16] then return {event_beat(whole_event(keys), v), -1} end
  local s = audience(keys, 16)
  local info = read_info(s)
  require_owner(info.event, v.event)
  local alive = event_beat(whole_event(keys), v)
  return {alive, session_beat(s, v, info)}
end)

-- session_beat: the session's part of a beat, on a cluster.   KEYS the session's 10   ARGV as beat   Reply alive
verb('session_beat', function(keys, args)
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
  if close_slot(s, info, at) then redis.call('HSET', s.info, 'slot', math.floor(at / SLOT_MS)) end
  lower(s, user, note, at, window_now(info.window, info.window_until, at, least))
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
verb('leave', function(keys, args)
  local e, v = whole_event(keys), {event = args[1], session = args[2], user = args[4], at = now(args[5])}
  local least = tonumber(args[6])
  v.room = v.session ~= '' and v.session .. '#' .. args[3] or args[3]
  local rest, open, note = read_viewer(e, v.user)
  local place = index_of(open, v.room)
  if not place then return {0, 0} end
  local info = read_info(e)
  info.least = least
  if close_slot(e, info, v.at) then redis.call('HSET', e.info, 'slot', math.floor(v.at / SLOT_MS)) end
  local window = window_now(info.window, info.window_until, v.at, least)
  local stop = tonumber(redis.call('ZSCORE', e.ends, v.user))
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
verb('session_leave', function(keys, args)
  leave_session(audience(keys, 1), args[1], now(args[2]), tonumber(args[3]))
end)

-- From when on a beat counts as alive.
local function alive_since(info, at, least)
  local window, window_until = unpack(redis.call('HMGET', info, 'window', 'window_until'))
  return at - window_now(window, window_until, at, least)
end

-- alive: how many are there now.   KEYS heartbeat, info   ARGV now, least window   Reply {alive, window}
question('alive', function(keys, args)
  local at = now(args[1])
  local since = alive_since(keys[2], at, tonumber(args[2]))
  return {redis.call('ZCOUNT', keys[1], since, '+inf'), at - since}
end)

-- seen_since: how many were there at some time since a moment.   KEYS heartbeat, left   ARGV from   Reply count
-- Those who left have a score AWAY_MS too low: who left since then but does not show in the scores is added.
question('seen_since', function(keys, args)
  local from = tonumber(args[1])
  return redis.call('ZCOUNT', keys[1], from, '+inf')
    + redis.call('ZCOUNT', keys[2], from, '(' .. text(from + AWAY_MS))
end)

-- statistics: the record of now.   KEYS the audience's 10   ARGV now, least window   Reply JSON
question('statistics', function(keys, args)
  local a, at = audience(keys, 1), now(args[1])
  return statistics(a, alive_since(a.info, at, tonumber(args[2])), SHIFT - 1, at)
end)

-- figures: what the audience's keys say as a whole.   KEYS the audience's 10   ARGV now, least window
-- Reply {born, alive, seen, attended, peak, peak_at, logins, window, title or false, declared}
question('figures', function(keys, args)
  local a, at, least = audience(keys, 1), now(args[1]), tonumber(args[2])
  local born, peak, peak_at, logins, window, window_until, title, declared = unpack(redis.call('HMGET', a.info,
    'born', 'peak', 'peak_at', 'logins', 'window', 'window_until', 'title', 'declared'))
  window = window_now(window, window_until, at, least)
  return {
    tonumber(born or 0),
    redis.call('ZCOUNT', a.heartbeat, at - window, '+inf'), redis.call('ZCARD', a.heartbeat),
    redis.call('SCARD', a.attended), tonumber(peak or 0), tonumber(peak_at or 0), tonumber(logins or 0), window,
    title, declared and 1 or 0,
  }
end)

-- declare: an admin makes an event known.
-- KEYS info, sessions; on one server also each session's info   ARGV event, now, title ('=…', '' to keep), session …
-- Reply {title or false, sessions}
verb('declare', function(keys, args)
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
  effect('known', event, at)
  return {redis.call('HGET', keys[1], 'title'), redis.call('SMEMBERS', keys[2])}
end)

recipe('known', function(event, at)
  return {'ZADD', key.live_events(), 'GT', at, event}
end, 1)

-- claim: a session belongs to an event, on a cluster.   KEYS info   ARGV event
verb('claim', function(keys, args)
  require_owner(redis.call('HGET', keys[1], 'event'), args[1])
  redis.call('HSET', keys[1], 'event', args[1])
end)

-- The index in a zset after a position that was read before: `<score> <member>`, or '' for the first. If that member
-- has moved meanwhile, reading goes on at its old score: some may come twice, but none is missed.
local function after(zset, position)
  if position == '' then return 0 end
  local value, member = string.match(position, '^(%S+) (.*)$')
  if redis.call('ZSCORE', zset, member) == value then return redis.call('ZRANK', zset, member) + 1 end
  return redis.call('ZCOUNT', zset, '-inf', '(' .. value)
end

-- close: records the five minutes that are over, if nobody's beat has done it.
-- KEYS the audience's 10   ARGV now, least window
verb('close', function(keys, args)
  local a, at = audience(keys, 1), now(args[1])
  local info = read_info(a)
  info.least = tonumber(args[2])
  if not close_slot(a, info, at) then return 0 end
  local last = redis.call('ZREVRANGE', a.heartbeat, 0, 0, 'WITHSCORES')
  local slot = math.floor(tonumber(last[2] or 0) / SLOT_MS)
  if slot > info.slot then
    redis.call('HSET', a.info, 'slot', slot)
  else
    redis.call('HDEL', a.info, 'slot')
  end
  return 1
end)

-- sweep: viewing sessions at a place that ended in silence are over, a batch at a time, oldest first.
-- KEYS the event's 15   ARGV place, now, least window, batch   Reply how many were looked at
verb('sweep', function(keys, args)
  local e, room, at, batch = whole_event(keys), args[1], now(args[2]), tonumber(args[4])
  local info = read_info(e)
  -- A second of grace: another process's clock may be a little behind.
  local limit = at - window_now(info.window, info.window_until, at, tonumber(args[3])) - 1000
  local first = after(e.ends, redis.call('HGET', e.rooms, room) or '')
  local found, looked, position = redis.call('ZRANGE', e.ends, first, first + batch - 1, 'WITHSCORES'), 0, nil
  for i = 1, #found, 2 do
    local user, stop = found[i], found[i + 1]
    if tonumber(stop) > limit then break end
    looked, position = looked + 1, stop .. ' ' .. user
    local rest, open, note = read_viewer(e, user)
    local place = index_of(open, room)
    if place then
      finish(e, user, room, redis.call('ZSCORE', e.starts, user), stop)
      table.remove(open, place)
      write_viewer(e, user, rest, open, room, note)
    end
  end
  if position then redis.call('HSET', e.rooms, room, position) end
  return looked
end)

-- written: records that are in SQL now go.   KEYS records   ARGV field, value, field, value …
verb('written', function(keys, args)
  for i = 1, #args, 2 do
    if redis.call('HGET', keys[1], args[i]) == args[i + 1] then redis.call('HDEL', keys[1], args[i]) end
  end
end)

local function last_beat(a)
  local last = redis.call('ZREVRANGE', a.heartbeat, 0, 0, 'WITHSCORES')
  return tonumber(last[2] or 0)
end

-- rest: the event has fallen silent and everything of it is recorded; a beat will wake it again.
-- KEYS the event's 13   ARGV now   Reply whether it rests
verb('rest', function(keys, args)
  local e = whole_event(keys)
  local busy = last_beat(e) > now(args[1]) - AWAY_MS - 1000
    or redis.call('ZCARD', e.finished) > 0
    or redis.call('HLEN', e.records) > 0
    or redis.call('HEXISTS', e.info, 'slot') == 1
  if busy then return 0 end
  redis.call('HDEL', e.info, 'awake')
  return 1
end)

-- unlist: an event that rests leaves the list, unless it woke again meanwhile.   KEYS awake   ARGV event, woke at
verb('unlist', function(keys, args)
  if redis.call('ZSCORE', keys[1], args[1]) == args[2] then redis.call('ZREM', keys[1], args[1]) end
end)

-- open_page: viewing sessions under way at a place, in the order they began.
-- KEYS the event's 15   ARGV place, position, count   Reply {position ('' at the end), viewer, start, end, …}
question('open_page', function(keys, args)
  local e, room, count = whole_event(keys), args[1], tonumber(args[3])
  local first = after(e.starts, args[2])
  local found = redis.call('ZRANGE', e.starts, first, first + count - 1, 'WITHSCORES')
  local page = {#found == 2 * count and found[#found] .. ' ' .. found[#found - 1] or ''}
  for i = 1, #found, 2 do
    local _, open = read_viewer(e, found[i])
    if index_of(open, room) then
      page[#page + 1], page[#page + 2], page[#page + 3] =
        found[i], found[i + 1], redis.call('ZSCORE', e.ends, found[i])
    end
  end
  return page
end)

-- What is known of one viewer: {viewer, last seen or false, place or false, alive}
local function about(keys, user, since)
  local beat, left = redis.call('ZSCORE', keys[1], user), redis.call('ZSCORE', keys[2], user)
  local note = redis.call('HGET', keys[3], user)
  local room = note and split(note, '\n')[2]
  local alive = beat and tonumber(beat) >= since
  return {user, left or beat, room and string.gsub(room, '^#', '') or false, alive and 1 or 0}
end

-- report: what is known of some viewers.   KEYS heartbeat, left, viewers, info   ARGV now, least window, viewer …
-- Reply {{viewer, last seen, place, alive}, …}
question('report', function(keys, args)
  local since, reply = alive_since(keys[4], now(args[1]), tonumber(args[2])), {}
  for i = 3, #args do reply[#reply + 1] = about(keys, args[i], since) end
  return reply
end)

-- alive_page: who is alive, longest silent first.   KEYS as report   ARGV now, least window, position, count
-- Reply {position ('' at the end), {viewer, last seen, place, alive}, …}
question('alive_page', function(keys, args)
  local since, count = alive_since(keys[4], now(args[1]), tonumber(args[2])), tonumber(args[4])
  local first = math.max(after(keys[1], args[3]), redis.call('ZCOUNT', keys[1], '-inf', '(' .. text(since)))
  local found = redis.call('ZRANGE', keys[1], first, first + count - 1, 'WITHSCORES')
  local page = {#found == 2 * count and found[#found] .. ' ' .. found[#found - 1] or ''}
  for i = 1, #found, 2 do page[#page + 1] = about(keys, found[i], since) end
  return page
end)

-- forget: a person's traces in an audience go.   KEYS the audience's 10   ARGV viewer
verb('forget', function(keys, args)
  local a, user = audience(keys, 1), args[1]
  local note = redis.call('HGET', a.viewers, user)
  if note then replace(a, user, split(note, '\n')[1], {}) end
  for _, zset in ipairs({a.heartbeat, a.countries, a.left}) do redis.call('ZREM', zset, user) end
  redis.call('SREM', a.attended, user)
  redis.call('HDEL', a.viewers, user)
end)

local function require_silence(a, before)
  if last_beat(a) >= before then fail('still_live', 'Somebody has come back.') end
end

-- retire_rooms: raw viewing sessions of a silent event go, some places at a time; they are in SQL.
-- KEYS the event's 13   ARGV event, silent since, place …
verb('retire_rooms', function(keys, args)
  local e, v = whole_event(keys), {event = args[1]}
  require_silence(e, tonumber(args[2]))
  for i = 3, #args do
    redis.call('UNLINK', start_key(v, args[i]), end_key(v, args[i]))
    redis.call('HDEL', e.rooms, args[i])
  end
end)

-- retire: an audience's raw keys go; what was declared stays.
-- KEYS the audience's 10   ARGV silent since, whether to keep what was declared
verb('retire', function(keys, args)
  local a = audience(keys, 1)
  require_silence(a, tonumber(args[1]))
  local kept = redis.call('HMGET', a.info, 'declared', 'title', 'event')
  redis.call('UNLINK', unpack(keys))
  if args[2] ~= '1' then return end
  for i, name in ipairs({'declared', 'title', 'event'}) do
    if kept[i] then redis.call('HSET', a.info, name, kept[i]) end
  end
end)
