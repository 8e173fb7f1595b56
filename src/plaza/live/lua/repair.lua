-- What the audit asks of an audience, and what makes one true again. A viewer's note in `viewers` and the score in
-- `heartbeat` are the facts: whatever else an audience counts by follows from them.

local function audience_of(kind, id)
  local names = {}
  for i, noun in ipairs({'heartbeat', 'statistics', 'attended', 'info', 'viewers', 'countries', 'groups', 'group_names',
    'left', 'records'}) do
    names[i] = key[kind .. '_' .. noun](id)
  end
  return audience(names, 1)
end

-- check_groups: the first of a viewer's groups that they are not counted for, '' if there is none.
-- KEYS viewers   ARGV 'event' or 'session', its id, viewer
query('check_groups', function(keys, args)
  local a, user = audience_of(args[1], args[2]), args[3]
  local note, beat = redis.call('HGET', a.viewers, user), tonumber(redis.call('ZSCORE', a.heartbeat, user) or '')
  if not note or not beat then return '' end
  for _, name in ipairs((groups_of(split(note, '\n')[1]))) do
    local n = tonumber(redis.call('HGET', a.group_names, name) or '')
    if not n or tonumber(redis.call('ZSCORE', a.groups, n .. '#' .. user) or '') ~= n * SHIFT + beat then return name end
  end
  return ''
end)

-- The rest of a viewer's statistics member, found by the score that it shares with the heartbeat.
local function find_rest(a, user, beat)
  if not beat then return nil end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', a.statistics, beat, beat, 'LIMIT', 0, 1000)) do
    if string.sub(member, 1, #user + 1) == user .. '#' then return string.sub(member, #user + 1) end
  end
end

-- When a viewer was last seen, by whatever still says it.
local function find_beat(a, user, rest)
  local beat = redis.call('ZSCORE', a.heartbeat, user) or (rest and redis.call('ZSCORE', a.statistics, user .. rest))
  if beat then return tonumber(beat) end
  local place = redis.call('ZSCORE', a.countries, user)
  return place and tonumber(place) % SHIFT
end

-- In the groups that the note names, and in no others.
local function repair_groups(a, user, groups, beat)
  local known = redis.call('HGETALL', a.group_names)
  for i = 1, #known, 2 do
    if not index_of(groups, known[i]) then redis.call('ZREM', a.groups, known[i + 1] .. '#' .. user) end
  end
  local _, numbers = number_groups(a, {groups = groups, most_groups = MOST_GIVEN_GROUPS})
  for _, n in ipairs(numbers) do redis.call('ZADD', a.groups, n * SHIFT + beat, n .. '#' .. user) end
end

local function repair_viewer(kind, id, user)
  local a = audience_of(kind, id)
  local note = redis.call('HGET', a.viewers, user)
  local beat = find_beat(a, user, note and split(note, '\n')[1])
  local rest = note and split(note, '\n')[1] or find_rest(a, user, beat)
  if not rest or not beat then return take_out(a, user, note) end
  if not note then redis.call('HSET', a.viewers, user, rest .. (kind == 'event' and '\n#' or '')) end
  local groups, country = groups_of(rest)
  redis.call('ZADD', a.heartbeat, beat, user)
  redis.call('SADD', a.attended, user)
  score(a, user, rest, {}, country, beat)
  repair_groups(a, user, groups, beat)
  local left = tonumber(redis.call('ZSCORE', a.left, user) or '')
  if left and left ~= beat + AWAY_MS then redis.call('ZREM', a.left, user) end
end

-- repair_event_viewer, repair_session_viewer   KEYS viewers   ARGV now_ms, event or session, viewer
command('repair_event_viewer', function(keys, args) repair_viewer('event', args[2], args[3]) end)
command('repair_session_viewer', function(keys, args) repair_viewer('session', args[2], args[3]) end)

-- A statistics member that is not the viewer's goes.
local function repair_statistic(kind, id, user, rest)
  local a = audience_of(kind, id)
  local note = redis.call('HGET', a.viewers, user)
  if note and split(note, '\n')[1] ~= rest then redis.call('ZREM', a.statistics, user .. rest) end
  repair_viewer(kind, id, user)
end
command('repair_event_statistic', function(keys, args) repair_statistic('event', unpack(args, 2)) end)
command('repair_session_statistic', function(keys, args) repair_statistic('session', unpack(args, 2)) end)

-- A viewing session that has a beginning has an end, and not before it.
local function repair_viewing(event, room, user)
  local starts, ends = start_key({event = event}, room), end_key({event = event}, room)
  local start, stop = redis.call('ZSCORE', starts, user), redis.call('ZSCORE', ends, user)
  if start and not stop then redis.call('ZADD', ends, start, user) end
  if stop and (not start or tonumber(start) > tonumber(stop)) then redis.call('ZADD', starts, stop, user) end
  redis.call('HSETNX', key.event_rooms(event), room, '')
end
-- repair_viewing, repair_session_viewing   KEYS a start   ARGV now_ms, event, (session,) location, viewer
command('repair_viewing', function(keys, args) repair_viewing(args[2], args[3], args[4]) end)
command('repair_session_viewing', function(keys, args) repair_viewing(args[2], args[3] .. '#' .. args[4], args[5]) end)

-- repair_room: the place of viewing sessions is known.   KEYS rooms   ARGV now_ms, event, (session,) location
command('repair_room', function(keys, args) redis.call('HSETNX', keys[1], args[3], '') end)
command('repair_session_room', function(keys, args) redis.call('HSETNX', keys[1], args[3] .. '#' .. args[4], '') end)

-- repair_awake: an event with something to record is on the worker's list.   KEYS info   ARGV now_ms, event
command('repair_awake', function(keys, args)
  if redis.call('HGET', keys[1], 'awake') then project('woke', args[2], args[1]) end
end)

-- repair_joined: a session that belongs to an event is one of its sessions.   KEYS sessions   ARGV now_ms, event, session
command('repair_joined', function(keys, args) redis.call('SADD', keys[1], args[3]) end)
