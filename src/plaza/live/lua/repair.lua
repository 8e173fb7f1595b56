-- Queries and commands of the audit. Heartbeats and statistics are source data: other services write them too. Repair
-- makes the additional keys follow them and never changes a documented key.

local AUDIENCE = {'heartbeat', 'statistics', 'attended', 'info', 'viewers', 'countries', 'groups', 'group_names',
  'left', 'records'}

local function audience_of(kind, id)
  local names = {}
  for i, noun in ipairs(AUDIENCE) do names[i] = key[kind .. '_' .. noun](id) end
  return read_audience(names, 1, kind)
end

-- check_groups: return the first of a viewer's groups that they are not counted for, '' if there is none.
-- KEYS viewers   ARGV 'event' or 'session', its id, viewer
query('check_groups', function(keys, args)
  local a, user = audience_of(args[1], args[2]), args[3]
  local entry, beat = redis.call('HGET', a.viewers, user), score_ms(a.heartbeat, user)
  if not entry or not beat then return '' end
  for _, name in ipairs((parse_details(first_line(entry)))) do
    local n = tonumber(redis.call('HGET', a.group_names, name) or '')
    local counted = n and tonumber(redis.call('ZSCORE', a.groups, n .. '#' .. user) or '')
    if n and counted ~= n * SCORE_SHIFT + beat then return name end
    if not n and redis.call('HLEN', a.group_names) < MAX_GROUPS then return name end
  end
  return ''
end)

-- check_statistics: whether a statistics member is counted.
-- KEYS viewers   ARGV 'event' or 'session', its id, viewer, details   Reply '' if it is, else what is counted
--
-- Of several members of a viewer the latest counts. One of a viewer without a heartbeat counts for nothing.
query('check_statistics', function(keys, args)
  local a, user, details = audience_of(args[1], args[2]), args[3], args[4]
  local entry = redis.call('HGET', a.viewers, user)
  if not entry or first_line(entry) == details then return '' end
  local score = tonumber(redis.call('ZSCORE', a.statistics, user .. details) or '-inf')
  local counted = tonumber(redis.call('ZSCORE', a.statistics, user .. first_line(entry)) or '-inf')
  return score > counted and first_line(entry) or ''
end)

-- In the groups of the details and in no others.
local function repair_groups(a, user, groups)
  local known = redis.call('HGETALL', a.group_names)
  for i = 1, #known, 2 do
    if not index_of(groups, known[i]) then redis.call('ZREM', a.groups, known[i + 1] .. '#' .. user) end
  end
end

local function repair_viewer(kind, at, id, user, details)
  local a = audience_of(kind, id)
  local entry, beat = redis.call('HGET', a.viewers, user), score_ms(a.heartbeat, user)
  if not beat then return uncount_viewer(a, user, entry) end
  details = details or (entry and redis.call('ZSCORE', a.statistics, user .. first_line(entry)) and first_line(entry))
    or find_details(a, user, beat) or (entry and first_line(entry)) or NO_DETAILS
  repair_groups(a, user, (parse_details(details)))
  count_viewer(a, user, entry, details, beat)
  -- If only another service has counted the viewer, the worker counts their viewing sessions.
  if kind == 'event' and not entry then redis.call('HSET', a.info, 'followed', at) end
end

-- repair_event_viewer, repair_session_viewer: count a viewer as their heartbeat and statistics say.
-- KEYS viewers   ARGV now_ms, event or session, viewer
command('repair_event_viewer', function(keys, args) repair_viewer('event', unpack(args, 1, 3)) end)
command('repair_session_viewer', function(keys, args) repair_viewer('session', unpack(args, 1, 3)) end)

-- repair_event_statistics, repair_session_statistics: count a viewer with the details of their latest member.
-- KEYS viewers   ARGV now_ms, event or session, viewer, details
command('repair_event_statistics', function(keys, args) repair_viewer('event', unpack(args, 1, 4)) end)
command('repair_session_statistics', function(keys, args) repair_viewer('session', unpack(args, 1, 4)) end)

-- repair_room, repair_session_room: add the place of viewing sessions.
-- KEYS rooms   ARGV now_ms, event, (session,) location
command('repair_room', function(keys, args) redis.call('HSETNX', keys[1], args[3], '') end)
command('repair_session_room', function(keys, args)
  redis.call('HSETNX', keys[1], args[3] .. '#' .. args[4], '')
  redis.call('SADD', key.event_sessions(args[2]), args[3])
end)

-- repair_awake: list an event that has something to record.   KEYS info   ARGV now_ms, event
command('repair_awake', function(keys, args)
  if redis.call('HGET', keys[1], 'awake') then project('woke', args[2], args[1]) end
end)

-- repair_joined: add a session to the sessions of its event.   KEYS sessions   ARGV now_ms, event, session
command('repair_joined', function(keys, args) redis.call('SADD', keys[1], args[3]) end)
