-- Audiences: the data and helpers that the other files use.
--
-- An audience is nine keys, in this order (keys.py describes each):
--   heartbeat statistics attended info viewers counts group_names left records
-- An event also has:  rooms sessions finished, and the start and end key of the place that a command is about.
-- A place is `<session>#<location>`, or `<location>` outside any session.
--
-- heartbeat, statistics and attended are documented keys: other services write them too. They are source data. The part
-- of a statistics member after the viewer ('#address#group#…#country') is the viewer's *details*.
--
-- The entry in `viewers` says what Plaza last counted for a viewer: '+' if they are counted in `counts`, else '-', then
-- their *class* ('country#group#…'), then one line per open place. `counts` has the number of '+' viewers by country and
-- by group. These are the viewers with a heartbeat since the *frontier* (a field of info). It moves up with the window, a
-- few seconds behind it, and uncounts the viewers it passes: each once. A reader leaves out those between the two.
--
-- Times are Unix milliseconds. A late heartbeat moves nothing back: every score is the larger of the two. Leaving lowers a
-- score, to AWAY_MS before now, which no window contains. So does a heartbeat that is earlier by more than a window: the
-- clock was set back.

-- How far apart the heartbeat and the statistics member of one heartbeat may be, if another service wrote them.
local SAME_BEAT_MS = 5000
-- Viewers that a heartbeat, which must stay fast, updates for other services before it writes a record.
local MAX_FOLLOWED_BY_BEAT = 1000
-- Viewers that one call compares with the heartbeats or with the counts.
local MAX_CHECKED_VIEWERS = 20000
-- How far the frontier may stay behind the window before a heartbeat moves it.
local FRONTIER_STEP_MS = 5000
-- Viewers that a heartbeat, a worker's call and a read take out of the counts at most.
local MAX_PASSED_BY_BEAT, MAX_PASSED_BY_WORKER, MAX_PASSED_BY_READ = 1000, 5000, 5000

local function read_audience(keys, first, kind)
  return {
    kind = kind,
    heartbeat = keys[first],
    statistics = keys[first + 1],
    attended = keys[first + 2],
    info = keys[first + 3],
    viewers = keys[first + 4],
    counts = keys[first + 5],
    group_names = keys[first + 6],
    left = keys[first + 7],
    records = keys[first + 8],
  }
end

-- An event's audience, with the keys that only an event has.
local function read_event(keys)
  local e = read_audience(keys, 1, 'event')
  e.rooms, e.sessions, e.finished, e.starts, e.ends = keys[10], keys[11], keys[12], keys[13], keys[14]
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

local function first_line(str)
  return string.match(str, '^[^\n]*')
end

local function index_of(list, value)
  for i, each in ipairs(list) do
    if each == value then return i end
  end
end

local function append_pair(list, name, value)
  list[#list + 1] = name
  list[#list + 1] = value
end

-- A score as whole milliseconds; nil if it is not a time. Other services may write fractions, infinity or nothing.
local function to_ms(score)
  local number = tonumber(score or '')
  if not number or number ~= number or number < 0 or number >= SCORE_SHIFT then return nil end
  return math.floor(number)
end

local function score_ms(zset, member)
  return to_ms(redis.call('ZSCORE', zset, member))
end

-- The window: the setting's, or longer while a viewer was sent a longer interval. `steps` are the fields of
-- WINDOW_FIELDS: a window and until when it is valid, then a shorter one that is valid for longer.
local WINDOW_FIELDS = {'window', 'window_until', 'later_window', 'later_until'}

local function window_at(steps, at, min_window)
  for i = 1, 3, 2 do
    if steps[i] and at <= tonumber(steps[i + 1]) then return math.max(min_window, tonumber(steps[i])) end
  end
  return min_window
end

-- Returns the window after a viewer was sent `interval` for the next heartbeat; writes it if it changes. The window
-- grows at once, but shrinks only when it has passed for every viewer who was sent a longer interval. The window for an
-- interval stays valid for half a window longer than needed, so that not every heartbeat writes it.
local function extend_window(fields, info, at, interval, min_window)
  local wanted = math.max(min_window, 2 * interval + GRACE_MS)
  local steps, window = info.window, window_at(info.window, at, min_window)
  if window_at(steps, at + wanted, min_window) >= wanted then return window end
  local first, second = {steps[1] or 0, steps[2] or 0}, {steps[3] or 0, steps[4] or 0}
  if at > tonumber(first[2]) then first, second = second, {0, 0} end
  if wanted >= window then
    first = {wanted, at + 1.5 * wanted}
  else
    local valid = at <= tonumber(second[2]) and tonumber(second[1]) or 0
    second = {math.max(wanted, valid), at + 1.5 * wanted}
  end
  for i, value in ipairs({first[1], first[2], second[1], second[2]}) do append_pair(fields, WINDOW_FIELDS[i], value) end
  return math.max(window, wanted)
end

local function read_info(a)
  local found = redis.call('HMGET', a.info, 'born', 'peak', 'slot', 'recorded', 'awake', 'declared', 'event',
    'frontier', unpack(WINDOW_FIELDS))
  local born, peak, slot, recorded, awake, declared, event, frontier = unpack(found, 1, 8)
  a.frontier = tonumber(frontier or '')
  return {
    born = born,
    peak = tonumber(peak or 0),
    slot = slot and tonumber(slot),
    recorded = tonumber(recorded or -1),
    awake = awake,
    declared = declared,
    event = event,
    window = {unpack(found, 9)},
  }
end

-- The time of the latest heartbeat; 0 if there is none.
local function latest_beat(a)
  local latest = redis.call('ZREVRANGEBYSCORE', a.heartbeat, '(' .. text(SCORE_SHIFT), 0, 'WITHSCORES', 'LIMIT', 0, 1)
  return to_ms(latest[2]) or 0
end

-- The index in a zset after a position that was read before: `<score> <member>`, or '' for the first. If that member
-- has moved since, reading continues at its old score: some members may come twice, but none is missed.
local function index_after(zset, position)
  if position == '' then return 0 end
  local value, member = string.match(position, '^(%S+) (.*)$')
  if redis.call('ZSCORE', zset, member) == value then return redis.call('ZRANK', zset, member) + 1 end
  return redis.call('ZCOUNT', zset, '-inf', '(' .. value)
end

-- The position after a page of a zset, '' if the page is the last one.
local function position_after(page, count)
  return #page == 2 * count and page[#page] .. ' ' .. page[#page - 1] or ''
end
