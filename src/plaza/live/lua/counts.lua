-- Viewers by country and group: what is counted for each viewer (`viewers`), and the totals (`counts`).

-- The groups and the country in a viewer's details. Another service may write more groups than a heartbeat has: only
-- the first ones count.
local function parse_details(details)
  local parts = split(details, '#')
  local groups = {}
  for i = 3, #parts - 1 do
    if parts[i] ~= '' and #groups < MAX_GROUPS_PER_HEARTBEAT then groups[#groups + 1] = parts[i] end
  end
  local country = string.upper(parts[#parts])
  return groups, string.match(country, '^%u%u$') or UNKNOWN_COUNTRY
end

local function class_of(country, groups)
  return groups[1] and country .. '#' .. table.concat(groups, '#') or country
end

-- A viewer's entry: whether they are counted, and their class.
local function parse_entry(entry)
  local line = first_line(entry)
  return string.sub(line, 1, 1) == '+', string.sub(line, 2)
end

-- Returns the names of the groups that count. New ones are added; a group beyond the limit is left out.
local function known_groups(a, groups, max_groups)
  local names = {}
  if #groups == 0 then return names end
  local known = redis.call('HMGET', a.group_names, unpack(groups))
  for i, name in ipairs(groups) do
    local exists = known[i]
    if not exists and redis.call('HLEN', a.group_names) < max_groups then
      exists = redis.call('HSET', a.group_names, name, 1)
    end
    if exists then names[#names + 1] = name end
  end
  return names
end

-- The fields of `counts` that a class adds to: its country and its groups.
local function count_fields(class)
  local parts = split(class, '#')
  for i, part in ipairs(parts) do parts[i] = (i == 1 and 'c#' or 'g#') .. part end
  return parts
end

local function add_class(deltas, class, change)
  for _, field in ipairs(count_fields(class)) do deltas[field] = (deltas[field] or 0) + change end
end

local function write_counts(a, deltas)
  for field, change in pairs(deltas) do
    if change ~= 0 and redis.call('HINCRBY', a.counts, field, change) <= 0 then redis.call('HDEL', a.counts, field) end
  end
end

-- Makes `counts` follow a viewer: what was counted before, and what counts now (a class, or nil for nothing).
local function recount(a, before, class)
  if before == class then return end
  local deltas = {}
  if before then add_class(deltas, before, -1) end
  if class then add_class(deltas, class, 1) end
  write_counts(a, deltas)
end

-- The class that an entry is counted for, nil if it is not counted.
local function counted_class(entry)
  if not entry then return nil end
  local counted, class = parse_entry(entry)
  return counted and class or nil
end

-- The details of a viewer whose statistics member has the heartbeat's score, or one within SAME_BEAT_MS. `except` are
-- details that are not meant.
local function find_details(a, user, beat, except)
  local prefix = user .. '#'
  for _, range in ipairs({{beat, '(' .. text(beat + 1)}, {beat - SAME_BEAT_MS, beat + SAME_BEAT_MS}}) do
    local members = redis.call('ZREVRANGEBYSCORE', a.statistics, range[2], range[1], 'LIMIT', 0, 1000)
    for _, member in ipairs(members) do
      local details = string.sub(member, #user + 1)
      if string.sub(member, 1, #prefix) == prefix and details ~= except then return details end
    end
  end
end

-- The class in a viewer's details. Its groups are added to those of the audience.
local function class_in(a, details)
  local groups, country = parse_details(details)
  return class_of(country, known_groups(a, groups, MAX_GROUPS))
end

-- Counts a viewer of a class with this heartbeat, and remembers that in `viewers`. Returns whether that changed anything.
local function count_viewer(a, user, entry, class, at)
  if not a.frontier then
    a.frontier = at
    redis.call('HSET', a.info, 'frontier', at)
  end
  local left = tonumber(redis.call('ZSCORE', a.left, user) or '')
  local has_left = left ~= nil and left == at + AWAY_MS
  if left and left < SCORE_SHIFT and not has_left then redis.call('ZREM', a.left, user) end
  local counted = at >= a.frontier and not has_left
  recount(a, counted_class(entry), counted and class or nil)
  local rest = has_left and '\n#' or ''
  if a.kind == 'event' then rest = entry and string.match(entry, '\n.*') or '\n#' end
  local new = (counted and '+' or '-') .. class .. rest
  if new ~= entry then redis.call('HSET', a.viewers, user, new) end
  redis.call('HSETNX', a.info, 'born', at)
  return new ~= entry
end

-- Removes a viewer from the additional keys of an audience.
local function uncount_viewer(a, user, entry)
  recount(a, counted_class(entry), nil)
  redis.call('ZREM', a.left, user)
  redis.call('HDEL', a.viewers, user)
end

-- Makes the additional keys follow one viewer's heartbeat, if another service wrote it. Documented keys do not change.
-- Returns 1 if it changed anything.
local function follow_viewer(a, user, score)
  local beat = to_ms(score)
  if not beat then return 0 end
  local entry, details = redis.call('HGET', a.viewers, user), find_details(a, user, beat)
  local class = details and class_in(a, details) or entry and select(2, parse_entry(entry)) or UNKNOWN_COUNTRY
  return count_viewer(a, user, entry, class, beat) and 1 or 0
end

-- Follows a page of heartbeats from `position` on. Returns the next position ('' at the end) and the number of changes.
local function follow_page(a, since, position, count, at)
  local first = math.max(index_after(a.heartbeat, position), redis.call('ZCOUNT', a.heartbeat, '-inf', '(' .. text(since)))
  local page, changed = redis.call('ZRANGE', a.heartbeat, first, first + count - 1, 'WITHSCORES'), 0
  for i = 1, #page, 2 do changed = changed + follow_viewer(a, page[i], page[i + 1]) end
  if changed > 0 then redis.call('HSET', a.info, 'followed', at) end
  return position_after(page, count), changed
end

-- Calls `visit(user, entry)` for the viewers with a heartbeat in [from, to) who are marked `mark`; at most about `limit`
-- heartbeats. Returns nil, or the score up to which it came.
local function each_marked(a, from, to, mark, limit, visit)
  if from >= to then return nil end
  local upper, reached = '(' .. text(to), nil
  local found = redis.call('ZRANGEBYSCORE', a.heartbeat, from, upper, 'WITHSCORES', 'LIMIT', 0, limit)
  if #found == 2 * limit then
    -- All of the last score or none, so that the next call continues after it.
    reached = tonumber(found[#found])
    if reached == tonumber(found[2]) then
      found, reached = redis.call('ZRANGEBYSCORE', a.heartbeat, found[2], found[2], 'WITHSCORES'), reached + 1
    end
  end
  for first = 1, #found, 2000 do
    local users = {}
    for i = first, math.min(first + 1999, #found), 2 do
      if not reached or tonumber(found[i + 1]) < reached then users[#users + 1] = found[i] end
    end
    local entries = users[1] and redis.call('HMGET', a.viewers, unpack(users)) or {}
    for i, user in ipairs(users) do
      if entries[i] and string.sub(entries[i], 1, 1) == mark then visit(user, entries[i]) end
    end
  end
  return reached
end

-- Moves the frontier up or down to `from`, at most past `limit` viewers. Returns whether it is there.
local function move_frontier(a, from, limit)
  local deltas, entries, up = {}, {}, from >= a.frontier
  local low, high = math.min(from, a.frontier), math.max(from, a.frontier)
  local reached = each_marked(a, low, high, up and '+' or '-', up and limit or 1e9, function(user, entry)
    append_pair(entries, user, (up and '-' or '+') .. string.sub(entry, 2))
    add_class(deltas, select(2, parse_entry(entry)), up and -1 or 1)
  end)
  for i = 1, #entries, 2000 do redis.call('HSET', a.viewers, unpack(entries, i, math.min(i + 1999, #entries))) end
  write_counts(a, deltas)
  a.frontier = reached or from
  redis.call('HSET', a.info, 'frontier', text(a.frontier))
  return not reached
end

-- Uncounts viewers whose heartbeats another service removed or set back. Larger audiences are left to the audit.
local function uncount_removed(a)
  if redis.call('HLEN', a.viewers) > MAX_CHECKED_VIEWERS then return end
  local entries = redis.call('HGETALL', a.viewers)
  for i = 1, #entries, 2 do
    local user, entry = entries[i], entries[i + 1]
    if counted_class(entry) then
      local beat = score_ms(a.heartbeat, user)
      if not beat then
        uncount_viewer(a, user, entry)
      elseif beat < a.frontier then
        recount(a, counted_class(entry), nil)
        redis.call('HSET', a.viewers, user, '-' .. string.sub(entry, 2))
      end
    end
  end
end

-- The viewers by country and group with a heartbeat between two times, as the entries say. Returns also their number,
-- and whether it could look at all viewers between the frontier and the times.
local function count_classes(a, from, to, limit)
  local totals, all = {}, redis.call('HGETALL', a.counts)
  for i = 1, #all, 2 do totals[all[i]] = tonumber(all[i + 1]) end
  local complete = true
  local function adjust(low, high, mark, change)
    local reached = each_marked(a, low, high, mark, limit, function(_, entry)
      add_class(totals, select(2, parse_entry(entry)), change)
    end)
    complete = complete and not reached
  end
  if a.frontier then
    adjust(a.frontier, from, '+', -1)
    adjust(from, a.frontier, '-', 1)
    adjust(to + 1, SCORE_SHIFT, '+', -1)
  end
  local countries, groups, counted = {}, {}, 0
  for field, count in pairs(totals) do
    local name = string.sub(field, 3)
    if count > 0 and string.sub(field, 1, 2) == 'c#' then
      countries[name], counted = count, counted + count
    elseif count > 0 then
      groups[name] = count
    end
  end
  return countries, groups, counted, complete
end

-- The statistics of a time, as JSON. Returns also whether the additional keys follow all heartbeats of that time: if
-- another service wrote some, they may not yet. Such viewers count for the unknown country.
local function statistics(a, from, to, timestamp, limit)
  local viewers = redis.call('ZCOUNT', a.heartbeat, from, to)
  from, to = math.max(0, from), math.min(to, SCORE_SHIFT - 1)
  local countries, groups, counted, complete = count_classes(a, from, to, limit or 1e9)
  if viewers > counted then
    countries[UNKNOWN_COUNTRY] = (countries[UNKNOWN_COUNTRY] or 0) + viewers - counted
  end
  local json = cjson.encode({
    viewerCount = viewers,
    timestamp = timestamp,
    countByUserGroup = groups,
    countByViewingCountry = countries,
  })
  return json, complete and viewers == counted
end
