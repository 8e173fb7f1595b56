-- What every heartbeat records: five-minute records, the window, the scores of a viewer, the peak.

-- Writes the record of the five minutes of `info.slot`, if they are over. Every heartbeat calls this before it changes
-- anything, so the scores still show the viewers at the end of those five minutes.
local function close_slot(a, info, at)
  if not info.slot or math.floor(at / SLOT_MS) <= info.slot then return false end
  local edge = (info.slot + 1) * SLOT_MS
  local from = edge - window_at(info.window, edge, info.min_window)
  local record, complete = statistics(a, from, edge, edge)
  if not complete then -- another service wrote heartbeats
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

-- Opens the five minutes, extends the window and moves the frontier, before heartbeats are written at `at`. Returns the
-- window. Afterwards every heartbeat of that time is beyond the frontier.
local function prepare(a, fields, info, v)
  info.min_window = v.min_window
  close_slot(a, info, v.at)
  open_slot(fields, info, v.at)
  local window = extend_window(fields, info, v.at, v.interval, v.min_window)
  local from = v.at - window
  if not a.frontier then
    a.frontier = from
    append_pair(fields, 'frontier', from)
  elseif from < a.frontier or from - a.frontier > FRONTIER_STEP_MS then
    move_frontier(a, from, MAX_PASSED_BY_BEAT)
  end
  return window
end

-- Writes the heartbeat score after a late heartbeat, where the later time stays. Returns the score.
local function keep_later(a, v)
  local seen = score_ms(a.heartbeat, v.user) or v.at
  if seen > alive_until(v.at, v.min_window) then
    seen = v.at -- that was before the clock was set back
    redis.call('ZADD', a.heartbeat, seen, v.user)
  end
  return seen
end

-- Writes a viewer's heartbeat; `entry` is what was counted so far, nil for a new viewer. Returns the viewer's class and the
-- groups that count. `v.opened` is set if the heartbeat opens a place; a cluster's session does not know that.
local function write_heartbeat(a, v, entry)
  local names = known_groups(a, v.groups, v.max_groups)
  local details, class = '#' .. v.address .. '#' .. table.concat(names, '#') .. '#' .. v.country, class_of(v.country, names)
  if not entry or v.opened or CLUSTERED then redis.call('SADD', a.attended, v.user) end
  if redis.call('ZADD', a.statistics, v.at, v.user .. details) == 1 then
    local before = score_ms(a.heartbeat, v.user)
    local replaced = before and find_details(a, v.user, before, details)
    if replaced then redis.call('ZREM', a.statistics, v.user .. replaced) end
  end
  if redis.call('ZADD', a.heartbeat, 'GT', 'CH', v.at, v.user) == 0 then
    redis.call('ZADD', a.statistics, keep_later(a, v), v.user .. details)
  end
  recount(a, counted_class(entry), class)
  return class, names
end

-- Writes the heartbeats of viewers whose class has not changed, all at one time: {user, details, …}. Empties the list.
local function write_known(a, shared, known)
  if not known[1] then return end
  local v = {at = shared.at, min_window = shared.min_window}
  local scores, members = {}, {}
  for i = 1, #known, 2 do
    append_pair(scores, v.at, known[i])
    append_pair(members, v.at, known[i] .. known[i + 1])
  end
  if redis.call('ZADD', a.statistics, unpack(members)) > 0 then
    for i = 1, #known, 2 do
      local before = score_ms(a.heartbeat, known[i])
      local replaced = before and find_details(a, known[i], before, known[i + 1])
      if replaced then redis.call('ZREM', a.statistics, known[i] .. replaced) end
    end
  end
  if redis.call('ZADD', a.heartbeat, 'GT', 'CH', unpack(scores)) < #known / 2 then
    for i = 1, #known, 2 do
      v.user = known[i]
      redis.call('ZADD', a.statistics, keep_later(a, v), v.user .. known[i + 1])
    end
  end
  for i = #known, 1, -1 do known[i] = nil end
end

-- Lowers a viewer's score, so that no window contains it. They left now, or at their last heartbeat if that is longer
-- ago than the window. Returns the viewer's first line, which is not counted any more.
local function lower_score(a, user, entry, at, window)
  local last = score_ms(a.heartbeat, user) or 0
  local left_at = at - last <= window and at or last
  local lowered = math.max(0, left_at - AWAY_MS)
  local details = find_details(a, user, last)
  redis.call('ZADD', a.heartbeat, lowered, user)
  if details then redis.call('ZADD', a.statistics, lowered, user .. details) end
  recount(a, counted_class(entry), nil)
  redis.call('ZADD', a.left, left_at, user)
  return '-' .. string.sub(first_line(entry), 2)
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
