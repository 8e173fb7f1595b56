-- Queries and commands of the audit. Heartbeats and statistics are source data: other services write them too. Repair
-- makes the additional keys follow them and never changes a documented key.

local AUDIENCE = {'heartbeat', 'statistics', 'attended', 'info', 'viewers', 'counts', 'group_names', 'left', 'records'}

local function audience_of(kind, id)
  local names = {}
  for i, noun in ipairs(AUDIENCE) do names[i] = key[kind .. '_' .. noun](id) end
  local a = read_audience(names, 1, kind)
  read_info(a)
  return a
end

-- Whether a class has the country and the groups of a viewer's details. Groups beyond the limit are in no class.
local function has_class(a, class, details)
  local groups, country = parse_details(details)
  local names, full = {}, redis.call('HLEN', a.group_names) >= MAX_GROUPS
  for _, name in ipairs(groups) do
    if not full or redis.call('HEXISTS', a.group_names, name) == 1 then names[#names + 1] = name end
  end
  return class == class_of(country, names)
end

-- check_viewer: say what is wrong with the entry of a viewer who has a heartbeat, '' if nothing is.
-- KEYS viewers   ARGV 'event' or 'session', its id, viewer
query('check_viewer', function(keys, args)
  local a, user = audience_of(args[1], args[2]), args[3]
  local entry, beat = redis.call('HGET', a.viewers, user), score_ms(a.heartbeat, user)
  if not entry or not beat then return '' end
  local counted, class = parse_entry(entry)
  local left = tonumber(redis.call('ZSCORE', a.left, user) or '')
  local is_alive = a.frontier ~= nil and beat >= a.frontier and left ~= beat + AWAY_MS
  if counted ~= is_alive then return is_alive and 'is not counted' or 'is counted, and long gone' end
  local details = find_details(a, user, beat)
  if details and not has_class(a, class, details) then return 'is counted as ' .. class end
  return ''
end)

-- The number of counted viewers by country and group, as the entries say; nil if there are too many to read at once.
local function expected_counts(a)
  if redis.call('HLEN', a.viewers) > MAX_CHECKED_VIEWERS then return nil end
  local totals = {}
  for _, entry in ipairs(redis.call('HVALS', a.viewers)) do
    local class = counted_class(entry)
    if class then add_class(totals, class, 1) end
  end
  return totals
end

-- check_count: return how many counted viewers a country or group has, -1 if there are too many viewers to count.
-- KEYS viewers   ARGV 'event' or 'session', its id, field of counts
query('check_count', function(keys, args)
  local totals = expected_counts(audience_of(args[1], args[2]))
  return totals and (totals[args[3]] or 0) or -1
end)

-- repair_event_counts, repair_session_counts: count all viewers again.   KEYS viewers   ARGV now_ms, event or session
local function repair_counts(kind, id)
  local a = audience_of(kind, id)
  local totals = expected_counts(a)
  if not totals then return end
  redis.call('DEL', a.counts)
  write_counts(a, totals)
end
command('repair_event_counts', function(keys, args) repair_counts('event', args[2]) end)
command('repair_session_counts', function(keys, args) repair_counts('session', args[2]) end)

local function repair_viewer(kind, at, id, user)
  local a = audience_of(kind, id)
  local entry, beat = redis.call('HGET', a.viewers, user), score_ms(a.heartbeat, user)
  if not beat then return uncount_viewer(a, user, entry) end
  follow_viewer(a, user, beat)
  -- If only another service has counted the viewer, the worker counts their viewing sessions.
  if kind == 'event' and not entry then redis.call('HSET', a.info, 'followed', at) end
end

-- repair_event_viewer, repair_session_viewer: count a viewer as their heartbeat and statistics say.
-- KEYS viewers   ARGV now_ms, event or session, viewer
command('repair_event_viewer', function(keys, args) repair_viewer('event', unpack(args, 1, 3)) end)
command('repair_session_viewer', function(keys, args) repair_viewer('session', unpack(args, 1, 3)) end)

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
