-- Audiences: the data and helpers that the other files use.
--
-- An audience is ten keys, in this order (keys.py describes each):
--   heartbeat statistics attended info viewers countries groups group_names left records
-- An event also has:  rooms sessions finished, and the start and end key of the place that a command is about.
-- A place is `<session>#<location>`, or `<location>` outside any session.
--
-- heartbeat, statistics and attended are documented keys: other services write them too. They are source data. The
-- entry in `viewers` says what Plaza last counted for a viewer: the *details* of their statistics member (everything
-- after the viewer: '#address#group#…#country'), then one line per open place.
--
-- Times are Unix milliseconds. A late heartbeat moves nothing back: every score is the larger of the two. Leaving lowers a
-- score, to AWAY_MS before now, which no window contains. So does a heartbeat that is earlier by more than a window: the
-- clock was set back.

-- The details of a viewer who has no statistics member.
local NO_DETAILS = '###' .. UNKNOWN_COUNTRY
-- How far apart the heartbeat and the statistics member of one heartbeat may be, if another service wrote them.
local SAME_BEAT_MS = 5000
-- Viewers that a heartbeat, which must stay fast, updates for other services before it writes a record.
local MAX_FOLLOWED_BY_BEAT = 1000
-- Counted viewers that one call compares with the heartbeats, to find those that another service removed.
local MAX_CHECKED_FOR_REMOVAL = 10000

local function read_audience(keys, first, kind)
  return {
    kind = kind,
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

-- An event's audience, with the keys that only an event has.
local function read_event(keys)
  local e = read_audience(keys, 1, 'event')
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

local function country_number(code)
  return (string.byte(code, 1) - 65) * 26 + string.byte(code, 2) - 65 + 1
end

local function country_code(number)
  return string.char(65 + math.floor((number - 1) / 26), 65 + (number - 1) % 26)
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
    unpack(WINDOW_FIELDS))
  local born, peak, slot, recorded, awake, declared, event = unpack(found, 1, 7)
  return {
    born = born,
    peak = tonumber(peak or 0),
    slot = slot and tonumber(slot),
    recorded = tonumber(recorded or -1),
    awake = awake,
    declared = declared,
    event = event,
    window = {unpack(found, 8)},
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

-- The groups and the country in a viewer's details.
local function parse_details(details)
  local parts = split(details, '#')
  local groups = {}
  for i = 3, #parts - 1 do
    if parts[i] ~= '' then groups[#groups + 1] = parts[i] end
  end
  local country = string.upper(parts[#parts])
  return groups, string.match(country, '^%u%u$') or UNKNOWN_COUNTRY
end

-- Returns the names and numbers of a viewer's groups. New groups get a number; a group beyond the limit is left out.
local function number_groups(a, groups, max_groups)
  local names, numbers = {}, {}
  if #groups == 0 then return names, numbers end
  local known = redis.call('HMGET', a.group_names, unpack(groups))
  for i, name in ipairs(groups) do
    local number = tonumber(known[i] or '')
    if not number then
      local count = redis.call('HLEN', a.group_names)
      -- Numbers of deleted groups are not used again.
      local next_number = math.max(count, tonumber(redis.call('HGET', a.info, 'last_group') or 0)) + 1
      if count < max_groups and next_number <= MAX_GROUP_NUMBER then
        number = next_number
        redis.call('HSET', a.group_names, name, number)
        if number > count + 1 then redis.call('HSET', a.info, 'last_group', number) end
      end
    end
    if number then
      names[#names + 1], numbers[#numbers + 1] = name, number
    end
  end
  return names, numbers
end

-- Removes a viewer from the groups in their old details that `names` does not contain.
local function leave_groups(a, user, old_details, names)
  for _, name in ipairs((parse_details(old_details))) do
    if not index_of(names, name) then
      local number = redis.call('HGET', a.group_names, name)
      if number then redis.call('ZREM', a.groups, number .. '#' .. user) end
    end
  end
end

-- Counts a viewer for a country and for groups at a time.
local function index_viewer(a, user, numbers, country, at)
  redis.call('ZADD', a.countries, country_number(country) * SCORE_SHIFT + at, user)
  local scores = {}
  for _, n in ipairs(numbers) do append_pair(scores, n * SCORE_SHIFT + at, n .. '#' .. user) end
  if scores[1] then redis.call('ZADD', a.groups, unpack(scores)) end
end

-- The numbers of groups that have one.
local function known_group_numbers(a, groups)
  local numbers = {}
  if #groups == 0 then return numbers end
  for _, number in ipairs(redis.call('HMGET', a.group_names, unpack(groups))) do
    if number then numbers[#numbers + 1] = tonumber(number) end
  end
  return numbers
end

-- The details of a viewer whose statistics member has the heartbeat's score, or one within SAME_BEAT_MS.
local function find_details(a, user, beat)
  local prefix = user .. '#'
  for _, range in ipairs({{beat, '(' .. text(beat + 1)}, {beat - SAME_BEAT_MS, beat + SAME_BEAT_MS}}) do
    local members = redis.call('ZREVRANGEBYSCORE', a.statistics, range[2], range[1], 'LIMIT', 0, 1000)
    for _, member in ipairs(members) do
      if string.sub(member, 1, #prefix) == prefix then return string.sub(member, #user + 1) end
    end
  end
end

-- Counts a viewer with these details at a time, and remembers that in `viewers`.
local function count_viewer(a, user, entry, details, at)
  local groups, country = parse_details(details)
  if entry and first_line(entry) ~= details then leave_groups(a, user, first_line(entry), groups) end
  local _, numbers = number_groups(a, groups, MAX_GROUPS)
  index_viewer(a, user, numbers, country, at)
  local places = ''
  if a.kind == 'event' then places = entry and string.match(entry, '\n.*') or '\n#' end
  if details .. places ~= entry then redis.call('HSET', a.viewers, user, details .. places) end
  local left = tonumber(redis.call('ZSCORE', a.left, user) or '')
  if left and left < SCORE_SHIFT and left ~= at + AWAY_MS then redis.call('ZREM', a.left, user) end
  redis.call('HSETNX', a.info, 'born', at)
end

-- Removes a viewer from the additional keys of an audience.
local function uncount_viewer(a, user, entry)
  if entry then leave_groups(a, user, first_line(entry), {}) end
  redis.call('ZREM', a.countries, user)
  redis.call('ZREM', a.left, user)
  redis.call('HDEL', a.viewers, user)
end

-- Makes the additional keys follow one viewer's heartbeat, if another service wrote it. Documented keys do not change.
-- Returns 1 if it changed anything.
local function follow_viewer(a, user, score)
  local beat = to_ms(score)
  if not beat then return 0 end
  local entry = redis.call('HGET', a.viewers, user)
  local counted = tonumber(redis.call('ZSCORE', a.countries, user) or '')
  if entry and counted and counted % SCORE_SHIFT == beat then return 0 end
  local details = find_details(a, user, beat) or (entry and first_line(entry)) or NO_DETAILS
  count_viewer(a, user, entry, details, beat)
  return 1
end

-- Follows a page of heartbeats from `position` on. Returns the next position ('' at the end) and the number of changes.
local function follow_page(a, since, position, count, at)
  local first = math.max(index_after(a.heartbeat, position), redis.call('ZCOUNT', a.heartbeat, '-inf', '(' .. text(since)))
  local page, changed = redis.call('ZRANGE', a.heartbeat, first, first + count - 1, 'WITHSCORES'), 0
  for i = 1, #page, 2 do changed = changed + follow_viewer(a, page[i], page[i + 1]) end
  if changed > 0 then redis.call('HSET', a.info, 'followed', at) end
  return position_after(page, count), changed
end

-- Viewers by country and by group with a heartbeat between two times.
local function count_countries(a, from, to)
  local counts, total, n = {}, 0, 0
  while true do
    local next = redis.call('ZRANGEBYSCORE', a.countries, n * SCORE_SHIFT, '+inf', 'LIMIT', 0, 1, 'WITHSCORES')
    if not next[1] then return counts, total end
    n = math.floor(tonumber(next[2]) / SCORE_SHIFT)
    local count = redis.call('ZCOUNT', a.countries, n * SCORE_SHIFT + from, n * SCORE_SHIFT + to)
    if count > 0 then counts[country_code(n)] = count end
    total = total + count
    n = n + 1
  end
end

-- Removes viewers from the countries and groups whose heartbeats another service removed or set back. Larger audiences
-- are left to the audit.
local function uncount_removed(a, since)
  if redis.call('ZCARD', a.countries) > MAX_CHECKED_FOR_REMOVAL then return end
  local counted = redis.call('ZRANGE', a.countries, 0, -1, 'WITHSCORES')
  for i = 1, #counted, 2 do
    local user, at = counted[i], tonumber(counted[i + 1]) % SCORE_SHIFT
    local beat = at >= since and redis.call('ZSCORE', a.heartbeat, user)
    if beat then
      follow_viewer(a, user, beat)
    elseif at >= since then
      uncount_viewer(a, user, redis.call('HGET', a.viewers, user))
    end
  end
end

local function count_groups(a, from, to)
  local counts, names = {}, redis.call('HGETALL', a.group_names)
  for i = 1, #names, 2 do
    local n = tonumber(names[i + 1])
    local count = n and redis.call('ZCOUNT', a.groups, n * SCORE_SHIFT + from, n * SCORE_SHIFT + to) or 0
    if count > 0 then counts[names[i]] = count end
  end
  return counts
end

-- The statistics of a time, as JSON. Returns also whether the additional keys follow all heartbeats of that time: if
-- another service wrote some, they may not yet. Such viewers count for the unknown country.
local function statistics(a, from, to, timestamp)
  local viewers = redis.call('ZCOUNT', a.heartbeat, from, to)
  from, to = math.max(0, from), math.min(to, SCORE_SHIFT - 1)
  local countries, counted = count_countries(a, from, to)
  if viewers > counted then
    countries[UNKNOWN_COUNTRY] = (countries[UNKNOWN_COUNTRY] or 0) + viewers - counted
  end
  local json = cjson.encode({
    viewerCount = viewers,
    timestamp = timestamp,
    countByUserGroup = count_groups(a, from, to),
    countByViewingCountry = countries,
  })
  return json, viewers == counted
end

-- Writes the record of the five minutes of `info.slot`, if they are over. Every heartbeat calls this before it changes
-- anything, so the scores still show the viewers at the end of those five minutes.
local function close_slot(a, info, at)
  if not info.slot or math.floor(at / SLOT_MS) <= info.slot then return false end
  local edge = (info.slot + 1) * SLOT_MS
  local from = edge - window_at(info.window, edge, info.min_window)
  local record, complete = statistics(a, from, edge, edge)
  if not complete then
    follow_page(a, from, '', MAX_FOLLOWED_BY_BEAT, at)
    record = statistics(a, from, edge, edge)
  end
  redis.call('HSET', a.records, edge, record)
  redis.call('HSET', a.info, 'recorded', info.slot)
  return true
end

local function open_slot(fields, info, at)
  if not info.born then append_pair(fields, 'born', at) end
  local slot = math.floor(at / SLOT_MS)
  -- One slot back is a late heartbeat. Further back, the clock had jumped ahead and was corrected.
  if not info.slot or slot > info.slot or slot < info.slot - 1 then
    append_pair(fields, 'slot', slot)
  end
end

-- The latest heartbeat that counts as alive. Clocks of processes differ by less than a window; later heartbeats were written
-- before the clock was set back.
local function alive_until(at, window)
  return at + window
end

-- Writes a viewer's heartbeat. `old_details` are those counted so far, nil for a new viewer. Returns the new details and
-- the groups that count. `v.opened` is set if the heartbeat opens a place; a cluster's session does not know that.
local function write_heartbeat(a, v, old_details)
  local names, numbers = number_groups(a, v.groups, v.max_groups)
  local details = '#' .. v.address .. '#' .. table.concat(names, '#') .. '#' .. v.country
  if not old_details or v.opened or CLUSTERED then redis.call('SADD', a.attended, v.user) end
  if old_details and old_details ~= details then
    redis.call('ZREM', a.statistics, v.user .. old_details)
    leave_groups(a, v.user, old_details, names)
  end
  local seen = v.at
  if redis.call('ZADD', a.heartbeat, 'GT', 'CH', seen, v.user) == 0 then
    seen = score_ms(a.heartbeat, v.user) or seen -- a late heartbeat: the later time stays
    if seen > alive_until(v.at, v.min_window) then
      seen = v.at
      redis.call('ZADD', a.heartbeat, seen, v.user)
    end
  end
  redis.call('ZADD', a.statistics, seen, v.user .. details)
  index_viewer(a, v.user, numbers, v.country, seen)
  return details, names
end

-- Lowers a viewer's score, so that no window contains it. They left now, or at their last heartbeat if that is longer
-- ago than the window.
local function lower_score(a, user, details, at, window)
  local last = score_ms(a.heartbeat, user) or 0
  local left_at = at - last <= window and at or last
  local lowered = math.max(0, left_at - AWAY_MS)
  local groups, country = parse_details(details)
  redis.call('ZADD', a.heartbeat, lowered, user)
  redis.call('ZADD', a.statistics, lowered, user .. details)
  index_viewer(a, user, known_group_numbers(a, groups), country, lowered)
  redis.call('ZADD', a.left, left_at, user)
end

-- Viewers alive at a time, as far as their last heartbeats tell: never more than there were.
local function alive_at(a, at, window)
  return redis.call('ZCOUNT', a.heartbeat, at - window, at)
end

-- Counts the viewers alive now and updates the peak. Heartbeats of several processes arrive slightly out of order.
-- Around a late one, no single window fits all viewers: then the peak is the larger of the counts at its own time and
-- at the latest time.
local function measure_peak(fields, a, info, at, window)
  local alive = redis.call('ZCOUNT', a.heartbeat, at - window, alive_until(at, window))
  if alive > info.peak then
    local peak, peak_at, latest = alive, at, latest_beat(a)
    if latest > at then
      peak = alive_at(a, at, window)
      local later = alive_at(a, latest, window)
      if later > peak then peak, peak_at = later, latest end
    end
    if peak > info.peak then
      append_pair(fields, 'peak', peak)
      append_pair(fields, 'peak_at', peak_at)
    end
  end
  return alive
end

local function write_info(a, fields)
  if #fields > 0 then redis.call('HSET', a.info, unpack(fields)) end
end
