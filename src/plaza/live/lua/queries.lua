-- What audiences look like. Nothing here changes anything.

-- From when on a beat counts as alive.
local function alive_since(info, at, least)
  return at - window_now(redis.call('HMGET', info, unpack(WINDOW_FIELDS)), at, least)
end

-- alive: how many are there now.   KEYS heartbeat, info   ARGV now, least window   Reply {alive, window}
query('alive', function(keys, args)
  local at = now(args[1])
  local since = alive_since(keys[2], at, tonumber(args[2]))
  return {redis.call('ZCOUNT', keys[1], since, '+inf'), at - since}
end)

-- seen_since: how many were there at some time since a moment.   KEYS heartbeat, left   ARGV from   Reply count
-- Those who left have a score AWAY_MS too low: who left since then but does not show in the scores is added.
query('seen_since', function(keys, args)
  local from = tonumber(args[1])
  return redis.call('ZCOUNT', keys[1], from, '+inf')
    + redis.call('ZCOUNT', keys[2], from, '(' .. text(from + AWAY_MS))
end)

-- statistics: the record of now.   KEYS the audience's 10   ARGV now, least window   Reply JSON
query('statistics', function(keys, args)
  local a, at = audience(keys, 1), now(args[1])
  return statistics(a, alive_since(a.info, at, tonumber(args[2])), SHIFT - 1, at)
end)

-- figures: what the audience's keys say as a whole.   KEYS the audience's 10   ARGV now, least window
-- Reply {born, peak, peak_at, logins, attended, alive, window, title or false}
query('figures', function(keys, args)
  local a, at = audience(keys, 1), now(args[1])
  local born, peak, peak_at, logins, title =
    unpack(redis.call('HMGET', a.info, 'born', 'peak', 'peak_at', 'logins', 'title'))
  local since = alive_since(a.info, at, tonumber(args[2]))
  return {
    tonumber(born or 0), tonumber(peak or 0), tonumber(peak_at or 0), tonumber(logins or 0),
    redis.call('SCARD', a.attended), redis.call('ZCOUNT', a.heartbeat, since, '+inf'), at - since, title,
  }
end)

-- The index in a zset after a position that was read before: `<score> <member>`, or '' for the first. If that member
-- has moved meanwhile, reading goes on at its old score: some may come twice, but none is missed.
local function after(zset, position)
  if position == '' then return 0 end
  local value, member = string.match(position, '^(%S+) (.*)$')
  if redis.call('ZSCORE', zset, member) == value then return redis.call('ZRANK', zset, member) + 1 end
  return redis.call('ZCOUNT', zset, '-inf', '(' .. value)
end

-- open_page: viewing sessions under way at a place, in the order they began.
-- KEYS the event's 15   ARGV place, position, count, now, least window
-- Reply {position ('' at the end), viewer, start, end, whether it goes on, …}
query('open_page', function(keys, args)
  local e, room, count = whole_event(keys), args[1], tonumber(args[3])
  local first, since = after(e.starts, args[2]), alive_since(e.info, now(args[4]), tonumber(args[5]))
  local found = redis.call('ZRANGE', e.starts, first, first + count - 1, 'WITHSCORES')
  local page = {#found == 2 * count and found[#found] .. ' ' .. found[#found - 1] or ''}
  for i = 1, #found, 2 do
    local _, open = read_viewer(e, found[i])
    if index_of(open, room) then
      local stop = redis.call('ZSCORE', e.ends, found[i]) or found[i + 1]
      for _, value in ipairs({found[i], found[i + 1], stop, tonumber(stop) >= since and 1 or 0}) do
        page[#page + 1] = value
      end
    end
  end
  return page
end)

-- What is known of one viewer: {viewer, last seen or false, place or false, alive}
local function about(keys, user, since)
  local beat, left = redis.call('ZSCORE', keys[1], user), redis.call('ZSCORE', keys[2], user)
  local note = redis.call('HGET', keys[3], user)
  local room = note and split(note, '\n')[2]
  local alive = beat and tonumber(beat) >= since
  return {user, left or beat, room and string.gsub(room, '^#', '') or false, alive and 1 or 0}
end

-- report: what is known of some viewers.   KEYS heartbeat, left, viewers, info   ARGV now, least window, viewer …
-- Reply {{viewer, last seen, place, alive}, …}
query('report', function(keys, args)
  local since, reply = alive_since(keys[4], now(args[1]), tonumber(args[2])), {}
  for i = 3, #args do reply[#reply + 1] = about(keys, args[i], since) end
  return reply
end)

-- alive_page: who is alive, longest silent first.   KEYS as report   ARGV now, least window, position, count
-- Reply {position ('' at the end), {viewer, last seen, place, alive}, …}
query('alive_page', function(keys, args)
  local since, count = alive_since(keys[4], now(args[1]), tonumber(args[2])), tonumber(args[4])
  local first = math.max(after(keys[1], args[3]), redis.call('ZCOUNT', keys[1], '-inf', '(' .. text(since)))
  local found = redis.call('ZRANGE', keys[1], first, first + count - 1, 'WITHSCORES')
  local page = {#found == 2 * count and found[#found] .. ' ' .. found[#found - 1] or ''}
  for i = 1, #found, 2 do page[#page + 1] = about(keys, found[i], since) end
  return page
end)
