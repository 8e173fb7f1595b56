-- Viewing sessions: where a viewer watches, when that began and ended, and which places may be new.

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

-- Returns the open places in a viewer's entry, latest first; none if there is no entry.
local function open_places(entry)
  if not entry then return {} end
  local lines = split(entry, '\n')
  table.remove(lines, 1)
  if lines[1] and string.sub(lines[1], 1, 1) == '#' then return {} end
  return lines
end

local function write_viewer(e, user, line, open, last_place, before)
  local places = #open > 0 and table.concat(open, '\n') or '#' .. last_place
  local entry = line .. '\n' .. places
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
  v.started = true
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
