-- Queries about audiences.

-- The earliest heartbeat that counts as alive.
local function alive_since(info, at, min_window)
  return at - window_at(redis.call('HMGET', info, unpack(WINDOW_FIELDS)), at, min_window)
end

-- alive: count the viewers alive now.   KEYS heartbeat, info   ARGV now, min window   Reply {alive, window}
query('alive', function(keys, args)
  local at = now(args[1])
  local since = alive_since(keys[2], at, tonumber(args[2]))
  return {redis.call('ZCOUNT', keys[1], since, alive_until(at, at - since)), at - since}
end)

-- seen_since: count the viewers who were there at any time since `from`.
-- KEYS heartbeat, left, info   ARGV now, min window, from   Reply count
--
-- These are viewers who are alive now or had a heartbeat since then, and viewers who left since then. Leaving the last
-- place lowers the heartbeat by AWAY_MS, so those who are not among the heartbeats have a left score below
-- `since + AWAY_MS`. Leaving one of several places lowers nothing; these few viewers are looked up.
query('seen_since', function(keys, args)
  local from = tonumber(args[3])
  local since = math.min(from, alive_since(keys[3], now(args[1]), tonumber(args[2])))
  local count = redis.call('ZCOUNT', keys[1], since, '+inf')
    + redis.call('ZCOUNT', keys[2], from, '(' .. text(since + AWAY_MS))
  local left_one_place = redis.call('ZRANGEBYSCORE', keys[2], SCORE_SHIFT + from, '(' .. text(SCORE_SHIFT + from + AWAY_MS))
  for _, user in ipairs(left_one_place) do
    local beat = tonumber(redis.call('ZSCORE', keys[1], user) or '')
    if not beat or beat < since then count = count + 1 end
  end
  return count
end)

-- statistics: the statistics of now.   KEYS the audience's 9   ARGV now, min window
-- Reply {JSON, 1 if the additional keys follow all heartbeats, the earliest heartbeat that counts}
query('statistics', function(keys, args)
  local a, at = read_audience(keys, 1), now(args[1])
  local since = at - window_at(read_info(a).window, at, tonumber(args[2]))
  local json, complete = statistics(a, since, alive_until(at, at - since), at, MAX_PASSED_BY_READ)
  return {json, complete and 1 or 0, since}
end)

-- figures: the totals of an audience.   KEYS the audience's 9   ARGV now, min window
-- Reply {born, peak, peak_at, logins, attended, seen, alive, window, title or false}
query('figures', function(keys, args)
  local a, at = read_audience(keys, 1), now(args[1])
  local born, peak, peak_at, logins, title =
    unpack(redis.call('HMGET', a.info, 'born', 'peak', 'peak_at', 'logins', 'title'))
  local since = alive_since(a.info, at, tonumber(args[2]))
  -- Heartbeats of other services are not measured when they are written.
  local measured = {}
  local alive = measure_peak(measured, a, {peak = tonumber(peak or 0)}, at, at - since)
  if measured[1] then peak, peak_at = measured[2], measured[4] end
  local attended = redis.call('SCARD', a.attended)
  return {
    tonumber(born or 0), tonumber(peak or 0), tonumber(peak_at or 0), tonumber(logins or 0), attended,
    math.max(attended, redis.call('ZCARD', a.heartbeat)), alive, at - since, title,
  }
end)

-- viewings_page: the latest viewing session of each viewer at a place, in the order they began. Those that wait for the
-- worker in `finished` are left out.
-- KEYS the event's 14   ARGV place, position, count, now, min window, event
-- Reply {position ('' at the end), unreadable, viewer, start, end, under way, open, …}; `open` is 1 if Plaza counts the
-- viewer there, 0 if the viewing session may be in SQL already or another service's
query('viewings_page', function(keys, args)
  local e, place, count = read_event(keys), args[1], tonumber(args[3])
  local first, since = index_after(e.starts, args[2]), alive_since(e.info, now(args[4]), tonumber(args[5]))
  local found = redis.call('ZRANGE', e.starts, first, first + count - 1, 'WITHSCORES')
  local page = {position_after(found, count), 0}
  for i = 1, #found, 2 do
    local user, start = found[i], to_ms(found[i + 1])
    if not start then
      page[2] = page[2] + 1
    elseif not redis.call('ZSCORE', e.finished, user .. '#' .. text(start) .. '#' .. place) then
      local open = open_places(redis.call('HGET', e.viewers, user))
      local stop, is_open = viewing_end(e, user, start), index_of(open, place) ~= nil
      local under_way = stop >= since and (is_open or not is_ended(args[6], user, place, start))
      for _, value in ipairs({user, text(start), text(stop), under_way and 1 or 0, is_open and 1 or 0}) do
        page[#page + 1] = value
      end
    end
  end
  return page
end)

-- under_way_page: the viewing sessions at a place with an end in the window, where Plaza does not count the viewer.
-- KEYS the event's 14   ARGV place, position, count, now, min window   Reply {position ('' at the end), viewer, start, …}
query('under_way_page', function(keys, args)
  local e, place, count = read_event(keys), args[1], tonumber(args[3])
  local since = alive_since(e.info, now(args[4]), tonumber(args[5]))
  local first = math.max(index_after(e.ends, args[2]), redis.call('ZCOUNT', e.ends, '-inf', '(' .. text(since)))
  local found = redis.call('ZRANGE', e.ends, first, first + count - 1, 'WITHSCORES')
  local page = {position_after(found, count)}
  for i = 1, #found, 2 do
    local user, start = found[i], score_ms(e.starts, found[i])
    local open = open_places(redis.call('HGET', e.viewers, user))
    if start and not index_of(open, place)
      and not redis.call('ZSCORE', e.finished, user .. '#' .. text(start) .. '#' .. place) then
      append_pair(page, user, text(start))
    end
  end
  return page
end)

-- The status of one viewer: {viewer, last seen or false, place or false, alive}
local function viewer_status(keys, user, since)
  local beat, left = score_ms(keys[1], user), tonumber(redis.call('ZSCORE', keys[2], user) or '')
  local seen = math.max(beat or -1, left and left % SCORE_SHIFT or -1)
  local entry = redis.call('HGET', keys[3], user)
  local place = entry and string.gsub(split(entry, '\n')[2] or '', '^#', '') or ''
  return {user, seen >= 0 and text(seen), place ~= '' and place, beat and beat >= since and 1 or 0}
end

-- report: the status of some viewers.   KEYS heartbeat, left, viewers, info   ARGV now, min window, viewer …
-- Reply {{viewer, last seen, place, alive}, …}
query('report', function(keys, args)
  local since, reply = alive_since(keys[4], now(args[1]), tonumber(args[2])), {}
  for i = 3, #args do reply[#reply + 1] = viewer_status(keys, args[i], since) end
  return reply
end)

-- alive_page: the viewers alive now, oldest heartbeat first.   KEYS as report   ARGV now, min window, position, count
-- Reply {position ('' at the end), {viewer, last seen, place, alive}, …}
query('alive_page', function(keys, args)
  local since, count = alive_since(keys[4], now(args[1]), tonumber(args[2])), tonumber(args[4])
  local first = math.max(index_after(keys[1], args[3]), redis.call('ZCOUNT', keys[1], '-inf', '(' .. text(since)))
  local found = redis.call('ZRANGE', keys[1], first, first + count - 1, 'WITHSCORES')
  local page = {position_after(found, count)}
  for i = 1, #found, 2 do page[#page + 1] = viewer_status(keys, found[i], since) end
  return page
end)
