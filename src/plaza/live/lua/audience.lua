-- What an audience is made of, for the verbs and questions in the files beside this one.
--
-- An audience is ten keys, in this order (keys.py says what each holds):
--   heartbeat statistics attended info viewers countries groups group_names left records
-- The event has besides:  rooms sessions finished, and the start and end of the place that a verb is about.
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

-- The window to count with: what the setting says, or longer while somebody was told to beat less often. `steps` are
-- the fields of WINDOW_FIELDS: a window and until when it was promised, then a shorter one that was promised longer.
local WINDOW_FIELDS = {'window', 'window_until', 'later_window', 'later_until'}

local function window_now(steps, at, least)
  for i = 1, 3, 2 do
    if steps[i] and at <= tonumber(steps[i + 1]) then return math.max(least, tonumber(steps[i])) end
  end
  return least
end

-- The window after telling a viewer to beat again in `interval`; writes it if it changes. Whoever is told an interval is
-- promised its window from then on, so the window grows at once, but falls only when it is over for everyone who was
-- told the longer one. A promise is made for half a window more than needed, or each beat would have to write it.
local function stretch(fields, info, at, interval, least)
  local wanted = math.max(least, 2 * interval + 5000)
  local steps, window = info.window, window_now(info.window, at, least)
  if window_now(steps, at + wanted, least) >= wanted then return window end
  local first, second = {steps[1] or 0, steps[2] or 0}, {steps[3] or 0, steps[4] or 0}
  if at > tonumber(first[2]) then first, second = second, {0, 0} end
  if wanted >= window then
    first = {wanted, at + 1.5 * wanted}
  else
    local promised = at <= tonumber(second[2]) and tonumber(second[1]) or 0
    second = {math.max(wanted, promised), at + 1.5 * wanted}
  end
  for i, value in ipairs({first[1], first[2], second[1], second[2]}) do put(fields, WINDOW_FIELDS[i], value) end
  return math.max(window, wanted)
end

local function read_info(a)
  local found = redis.call('HMGET', a.info, 'born', 'peak', 'slot', 'awake', 'declared', 'event', unpack(WINDOW_FIELDS))
  local born, peak, slot, awake, declared, event = unpack(found, 1, 6)
  return {
    born = born,
    peak = tonumber(peak or 0),
    slot = slot and tonumber(slot),
    awake = awake,
    declared = declared,
    event = event,
    window = {unpack(found, 7)},
  }
end

-- When anyone was last seen; 0 if nobody ever was.
local function last_beat(a)
  local last = redis.call('ZREVRANGE', a.heartbeat, 0, 0, 'WITHSCORES')
  return tonumber(last[2] or 0)
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
    local window = window_now(info.window, edge, info.least)
    redis.call('HSET', a.records, edge, statistics(a, edge - window, edge, edge))
    return true
  end
end

local function open_slot(fields, info, at)
  if not info.born then put(fields, 'born', at) end
  local slot = math.floor(at / SLOT_MS)
  -- One slot back is a beat that came late. Further back it was the clock: it had jumped ahead and was put right.
  if not info.slot or slot > info.slot or slot < info.slot - 1 then
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
  local by_number = {}
  for _, n in ipairs(numbers) do put(by_number, n * SHIFT + value, n .. '#' .. user) end
  if by_number[1] then redis.call('ZADD', a.groups, unpack(by_number)) end
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

-- The numbers of groups that a member names, which all have one.
local function numbers_of(a, groups)
  if #groups == 0 then return {} end
  local numbers = redis.call('HMGET', a.group_names, unpack(groups))
  for i, number in ipairs(numbers) do numbers[i] = tonumber(number) end
  return numbers
end

-- A viewer goes: no longer alive in any window, but still among those who were there until now, or until they were last
-- seen if that is longer ago than the window.
local function lower(a, user, rest, at, window)
  local last = tonumber(redis.call('ZSCORE', a.heartbeat, user) or 0)
  local gone = at - last <= window and at or last
  local groups, country = groups_of(rest)
  redis.call('ZADD', a.heartbeat, gone - AWAY_MS, user)
  score(a, user, rest, numbers_of(a, groups), country, gone - AWAY_MS)
  redis.call('ZADD', a.left, gone, user)
end

-- How many were alive at a moment, as far as their last beats tell: perhaps fewer than there were, never more.
local function alive_at(a, moment, window)
  return redis.call('ZCOUNT', a.heartbeat, moment - window, moment)
end

-- Counts who is alive now and keeps the peak. Beats of several processes arrive a little out of order: around one that
-- comes late no single window fits everyone, so the peak is then the larger of those at its own time and at the latest.
local function measure(fields, a, info, at, window)
  local alive = redis.call('ZCOUNT', a.heartbeat, at - window, '+inf')
  if alive > info.peak then
    local most, moment, latest = alive, at, last_beat(a)
    if latest > at then
      most = alive_at(a, at, window)
      local later = alive_at(a, latest, window)
      if later > most then most, moment = later, latest end
    end
    if most > info.peak then
      put(fields, 'peak', most)
      put(fields, 'peak_at', moment)
    end
  end
  return alive
end

local function write_info(a, fields)
  if #fields > 0 then redis.call('HSET', a.info, unpack(fields)) end
end
