-- Commands of viewers and admins: heartbeat, leave, declare. audience.lua describes the data.
--
-- On one server a heartbeat changes the event's audience and the session's in one function. On a cluster the session's
-- keys belong to another node, and a second call changes them. A heartbeat leaves no outbox entry: if the second call
-- is lost, the viewer sends the next heartbeat in 30 s.

-- Lists the event for the worker, which removes it again when it is silent and recorded.
projection('woke', function(event, at)
  return {'ZADD', key.live_awake(), 'GT', at, event}
end, 1)

-- Writes one heartbeat of a viewer who is new, comes back, or has changed something. `entry` is the viewer's, or false.
local function event_heartbeat(e, v, info, entry, window)
  local open = open_places(entry)
  if not index_of(open, v.place) then require_place(e, v, info) end
  -- On a declared event viewers can claim only groups that exist.
  if info.declared and not v.has_token_groups then v.max_groups = 0 end
  continue_viewing(e, v, open, window)
  local class, groups = write_heartbeat(e, v, entry or nil)
  write_viewer(e, v.user, '+' .. class, open, v.place, entry)
  local is_new = not info.born and not info.declared
  if is_new then project('known', v.event, v.at) end
  info.born = info.born or v.at
  local created = is_new and NEW_EVENT or v.created_place and NEW_PLACE or 0
  return groups, created + (v.started and NEW_VIEWING or 0)
end

local function session_heartbeat(s, v, entry)
  if entry and string.find(entry, '\n', 1, true) then redis.call('ZREM', s.left, v.user) end
  local line = '+' .. write_heartbeat(s, v, entry or nil)
  if line ~= entry then redis.call('HSET', s.viewers, v.user, line) end
end

-- ARGV of `beat`: those of all its heartbeats, then those of each.
--   event, session ('' for none), location, now, interval, min window, 1 if only declared events are accepted,
--   the origin of events ('' for none)
--   user, address, country, groups (joined by '#'), 1 if the groups come from the token, why the event must not be new
--   (see REFUSALS; '' if it may), why the place must not be new
local SHARED_ARGS, BEAT_ARGS = 8, 7

-- The heartbeats in ARGV: what they share, and each as a table that falls back to that.
local function read_beats(args)
  local session, location = args[2], args[3]
  local shared = {
    event = args[1],
    session = session,
    place = session ~= '' and session .. '#' .. location or location,
    at = now(args[4]),
    interval = tonumber(args[5]),
    min_window = tonumber(args[6]),
    only_declared = args[7] == '1',
    origin = args[8] ~= '' and args[8] or nil,
  }
  local beats, users, fallback = {}, {}, {__index = shared}
  for i = SHARED_ARGS + 1, #args, BEAT_ARGS do
    local beat = setmetatable({
      user = args[i],
      address = args[i + 1],
      country = args[i + 2],
      groups_text = args[i + 3],
      has_token_groups = args[i + 4] == '1',
      refusal = args[i + 5],
      place_refusal = args[i + 6],
    }, fallback)
    beats[#beats + 1], users[#users + 1] = beat, args[i]
  end
  return shared, beats, users
end

local function raw_class(v)
  return v.groups_text ~= '' and v.country .. '#' .. v.groups_text or v.country
end

local function raw_details(v)
  return '#' .. v.address .. '#' .. v.groups_text .. '#' .. v.country
end

-- Whether an entry begins with a text, followed by the end or a new line.
local function begins_with(entry, start)
  local after = string.byte(entry, #start + 1)
  return (after == nil or after == 10) and string.sub(entry, 1, #start) == start
end

-- Writes the event's part of heartbeats. A viewer who goes on watching at the place where they were last, with the same
-- country and groups, is *known*: all known viewers take four commands together. The reply of each heartbeat is set in
-- `beat.reply`: what it created, or the error that refused it.
local function event_heartbeats(e, shared, beats, users, info, fields)
  local window = prepare(e, fields, info, shared)
  local entries, stops = redis.call('HMGET', e.viewers, unpack(users)), redis.call('ZMSCORE', e.ends, unpack(users))
  local known, ends, touched = {}, {}, {}
  for i, v in ipairs(beats) do
    local user, entry, stop = v.user, entries[i], to_ms(stops[i])
    if touched[user] then -- twice in one call
      write_known(e, shared, known)
      entry = redis.call('HGET', e.viewers, user)
    end
    local is_known = entry and stop and not touched[user] and v.at - stop <= window
      and begins_with(entry, '+' .. raw_class(v) .. '\n' .. v.place)
    if is_known then
      append_pair(known, user, raw_details(v))
      append_pair(ends, v.at, user)
      v.reply, v.groups_counted = 0, v.groups_text
    else
      v.groups = v.groups_text ~= '' and split(v.groups_text, '#') or {}
      v.max_groups = v.has_token_groups and MAX_GROUPS or MAX_CLAIMED_GROUPS
      local ok, groups, created = pcall(event_heartbeat, e, v, info, entry, window)
      if ok then
        v.reply, v.groups_counted = created, table.concat(groups, '#')
      else
        v.reply = groups
      end
    end
    touched[user] = true
  end
  if ends[1] then redis.call('ZADD', e.ends, 'GT', unpack(ends)) end
  write_known(e, shared, known)
  return window
end

-- Writes the session's part of heartbeats. The session counts the groups that the event counts.
local function session_heartbeats(s, shared, beats, users, info)
  local fields = {}
  if not info.event then fields = {'event', shared.event} end
  local window = prepare(s, fields, info, shared)
  local entries, known, attended, touched = redis.call('HMGET', s.viewers, unpack(users)), {}, {}, {}
  for i, v in ipairs(beats) do
    local user, entry = v.user, entries[i]
    v.groups_text = v.groups_counted
    if touched[user] then
      write_known(s, shared, known)
      entry = redis.call('HGET', s.viewers, user)
    end
    if entry and not touched[user] and not v.opened and entry == '+' .. raw_class(v) then
      append_pair(known, user, raw_details(v))
      attended[#attended + 1] = user
    else
      v.groups, v.max_groups = v.groups_text ~= '' and split(v.groups_text, '#') or {}, MAX_GROUPS
      session_heartbeat(s, v, entry)
    end
    touched[user] = true
  end
  if CLUSTERED and attended[1] then redis.call('SADD', s.attended, unpack(attended)) end
  write_known(s, shared, known)
  local alive = measure_peak(fields, s, info, shared.at, window)
  write_info(s, fields)
  return alive
end

-- beat: write heartbeats of viewers at one place, for the event and on one server also for the session.
-- KEYS the event's 14; on one server with a session also its 9   ARGV see read_beats
-- Reply {alive, session_alive or -1, what each has created (NEW_EVENT, NEW_PLACE or 0, plus NEW_VIEWING) or its error, …}; on a
-- cluster each is followed by its groups that count (joined by '#')
command('beat', function(keys, args)
  local shared, beats, users = read_beats(args)
  local s = keys[15] and read_audience(keys, 15, 'session')
  local session_info = s and read_info(s)
  if s then require_owner(session_info.event, shared.event) end
  local e = read_event(keys)
  e.event, e.origin = shared.event, shared.origin
  local info, fields = read_info(e), {}
  local was_awake = info.awake
  local window = event_heartbeats(e, shared, beats, users, info, fields)
  local reply, written, writers = {0, -1}, {}, {}
  for i, v in ipairs(beats) do
    reply[#reply + 1] = v.reply
    if CLUSTERED then reply[#reply + 1] = v.groups_counted or '' end
    if v.groups_counted then written[#written + 1], writers[#writers + 1] = v, users[i] end
  end
  if not written[1] then return reply end
  reply[1] = measure_peak(fields, e, info, shared.at, window)
  if not was_awake then
    append_pair(fields, 'awake', 1)
    project('woke', shared.event, shared.at)
  end
  write_info(e, fields)
  if s then reply[2] = session_heartbeats(s, shared, written, writers, session_info) end
  return reply
end)

-- session_beat: the session's part of heartbeats, on a cluster, with the groups that count.
-- KEYS the session's 9   ARGV as beat   Reply alive
command('session_beat', function(keys, args)
  local shared, beats, users = read_beats(args)
  local s = read_audience(keys, 1, 'session')
  local info = read_info(s)
  require_owner(info.event, shared.event)
  for _, v in ipairs(beats) do v.groups_counted = v.groups_text end
  return session_heartbeats(s, shared, beats, users, info)
end)

-- Whether a site is counted by its name: the first `limit` sites that have the field are. `counter` counts these.
local function has_own_name(reports, field, counter, limit)
  if redis.call('HEXISTS', reports, field) == 1 then return true end
  if tonumber(redis.call('HGET', reports, counter) or 0) >= limit then return false end
  redis.call('HINCRBY', reports, counter, 1)
  return true
end

-- count_reports: add to what players reported. Sites beyond MAX_REFERRERS are counted together, and so is the quality of
-- sites beyond MAX_QUALITY_SITES: `reports_site` comes before the other fields of a site.
-- KEYS reports   ARGV field, amount, …
command('count_reports', function(keys, args)
  local reports, site_named = keys[1], false
  for i = 1, #args, 2 do
    local field = args[i]
    local metric = string.match(field, '^[^#]*')
    local named = true
    if metric == 'referrer' then
      named = has_own_name(reports, field, 'referrers##0', MAX_REFERRERS)
    elseif metric == 'reports_site' then
      site_named = has_own_name(reports, field, 'sites##0', MAX_QUALITY_SITES)
    end
    if string.sub(metric, -5) == '_site' then named = site_named end
    if not named then field = string.gsub(field, '#.*#', '##') end
    redis.call('HINCRBY', reports, field, args[i + 1])
  end
end)

local function leave_session(s, user, at, min_window)
  local entry = redis.call('HGET', s.viewers, user)
  if not entry or string.find(entry, '\n', 1, true) then return end
  local info = read_info(s)
  info.min_window = min_window
  if close_slot(s, info, at) then redis.call('HDEL', s.info, 'slot') end
  local line = lower_score(s, user, entry, at, window_at(info.window, at, min_window))
  redis.call('HSET', s.viewers, user, line .. '\n#')
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
  local entry = redis.call('HGET', e.viewers, v.user)
  local open = open_places(entry)
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
  local still_open, line = places_in_window(e, v, open, window), first_line(entry)
  if #still_open == 0 then
    line = lower_score(e, v.user, entry, v.at, window)
  else
    redis.call('ZADD', e.left, 'GT', SCORE_SHIFT + stop, v.user)
  end
  write_viewer(e, v.user, line, still_open, v.place, entry)
  local left_session = v.session ~= '' and not has_session(still_open, v.session)
  if left_session and keys[15] then leave_session(read_audience(keys, 15, 'session'), v.user, v.at, min_window) end
  return {1, left_session and 1 or 0}
end)

-- session_leave: the session's part of leaving, on a cluster.   KEYS the session's 9   ARGV user, now, min window
command('session_leave', function(keys, args)
  leave_session(read_audience(keys, 1, 'session'), args[1], now(args[2]), tonumber(args[3]))
end)

-- declare: set what an admin declares about an event, and add sessions.
-- KEYS info, sessions; on one server also each session's info
-- ARGV event, now, origin of the event ('' for none), each of DECLARED_FIELDS ('=…', '' to keep), session …
command('declare', function(keys, args)
  local event, at, origin = args[1], now(args[2]), args[3] ~= '' and args[3] or nil
  local new_sessions, first = 0, 4 + #DECLARED_FIELDS
  local function info_of(i) return keys[i - first + 3] end
  for i = first, #args do
    if info_of(i) then require_owner(redis.call('HGET', info_of(i), 'event'), event) end
    new_sessions = new_sessions + 1 - redis.call('SISMEMBER', keys[2], args[i])
  end
  if redis.call('SCARD', keys[2]) + new_sessions > MAX_SESSIONS then
    fail('too_many_places', 'This event has too many sessions. Declare fewer.', {field = 'sessions'})
  end
  local changed = redis.call('HSET', keys[1], 'declared', 1) == 1 or new_sessions > 0
  for i, field in ipairs(DECLARED_FIELDS) do
    local value = args[i + 3]
    if value ~= '' then
      changed = changed or redis.call('HGET', keys[1], field) ~= string.sub(value, 2)
      redis.call('HSET', keys[1], field, string.sub(value, 2))
    end
  end
  for i = first, #args do
    redis.call('SADD', keys[2], args[i])
    if info_of(i) then redis.call('HSET', info_of(i), 'event', event, 'declared', 1) end
  end
  if changed then emit('event.declared', event, {event = event}, origin) end
  local starts_at = tonumber(redis.call('HGET', keys[1], 'starts_at') or '')
  project('known', event, at)
  project('declared', event, starts_at and starts_at > 0 and starts_at or at)
end)

projection('known', function(event, at)
  return {'ZADD', key.live_events(), 'GT', at, event}
end, 1)

projection('declared', function(event, at)
  return {'ZADD', key.live_declared(), at, event}
end, 1)

-- declare_groups: add groups that viewers can claim.   KEYS the event's 9   ARGV group …
command('declare_groups', function(keys, args)
  known_groups(read_audience(keys, 1, 'event'), args, MAX_GROUPS)
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
