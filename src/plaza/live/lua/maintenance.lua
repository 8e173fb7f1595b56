-- What the worker does: records, ended viewing sessions, forgetting, the end of raw keys.

-- close: records the five minutes that are over, if nobody's beat has done it.
-- KEYS the audience's 10   ARGV now, least window
command('close', function(keys, args)
  local a, at = audience(keys, 1), now(args[1])
  local info = read_info(a)
  info.least = tonumber(args[2])
  if not close_slot(a, info, at) then return 0 end
  local slot = math.floor(last_beat(a) / SLOT_MS)
  if slot > info.slot then
    redis.call('HSET', a.info, 'slot', slot)
  else
    redis.call('HDEL', a.info, 'slot')
  end
  return 1
end)

-- sweep: viewing sessions at a place that ended in silence are over, a batch at a time, oldest first.
-- KEYS the event's 15   ARGV place, now, least window, batch   Reply how many were looked at
command('sweep', function(keys, args)
  local e, room, at, batch = whole_event(keys), args[1], now(args[2]), tonumber(args[4])
  local info = read_info(e)
  -- A second of grace: another process's clock may be a little behind.
  local limit = at - window_now(info.window, at, tonumber(args[3])) - 1000
  local first = after(e.ends, redis.call('HGET', e.rooms, room) or '')
  local found, looked, position = redis.call('ZRANGE', e.ends, first, first + batch - 1, 'WITHSCORES'), 0, nil
  for i = 1, #found, 2 do
    local user, stop = found[i], found[i + 1]
    if tonumber(stop) > limit then break end
    looked, position = looked + 1, stop .. ' ' .. user
    local rest, open, note = read_viewer(e, user)
    local place = index_of(open, room)
    if place then
      finish(e, user, room, redis.call('ZSCORE', e.starts, user), stop)
      table.remove(open, place)
      write_viewer(e, user, rest, open, room, note)
    end
  end
  if position then redis.call('HSET', e.rooms, room, position) end
  return looked
end)

-- written: records that are in SQL now go.   KEYS records   ARGV field, value, field, value …
command('written', function(keys, args)
  for i = 1, #args, 2 do
    if redis.call('HGET', keys[1], args[i]) == args[i + 1] then redis.call('HDEL', keys[1], args[i]) end
  end
end)

-- rest: the event has fallen silent and everything of it is recorded; a beat will wake it again.
-- KEYS the event's 13   ARGV now   Reply whether it rests
command('rest', function(keys, args)
  local e = whole_event(keys)
  local busy = last_beat(e) > now(args[1]) - AWAY_MS - 1000
    or redis.call('ZCARD', e.finished) > 0
    or redis.call('HLEN', e.records) > 0
    or redis.call('HEXISTS', e.info, 'slot') == 1
  if busy then return 0 end
  redis.call('HDEL', e.info, 'awake')
  return 1
end)

-- unlist: an event that rests leaves the list, unless it woke again meanwhile.   KEYS awake   ARGV event, woke at
command('unlist', function(keys, args)
  if redis.call('ZSCORE', keys[1], args[1]) == args[2] then redis.call('ZREM', keys[1], args[1]) end
end)

-- Takes a viewer out of everything an audience counts by.
local function take_out(a, user, note)
  if note then replace(a, user, split(note, '\n')[1], {}) end
  for _, zset in ipairs({a.heartbeat, a.countries, a.left}) do redis.call('ZREM', zset, user) end
  redis.call('SREM', a.attended, user)
  redis.call('HDEL', a.viewers, user)
end

-- forget: a person's traces in an audience go.   KEYS the audience's 10   ARGV viewer
command('forget', function(keys, args)
  local a = audience(keys, 1)
  take_out(a, args[1], redis.call('HGET', a.viewers, args[1]))
end)

-- rename: a person's traces in an audience take another name. Where both names were there, the one seen last stays.
-- KEYS the audience's 10   ARGV old, new
command('rename', function(keys, args)
  local a, old, new = audience(keys, 1), args[1], args[2]
  local note, theirs = unpack(redis.call('HMGET', a.viewers, old, new))
  if not note then return end
  local beat, left = tonumber(redis.call('ZSCORE', a.heartbeat, old)), redis.call('ZSCORE', a.left, old)
  take_out(a, old, note)
  if theirs and tonumber(redis.call('ZSCORE', a.heartbeat, new)) >= beat then return end
  take_out(a, new, theirs)
  local rest = split(note, '\n')[1]
  local groups, country = groups_of(rest)
  redis.call('ZADD', a.heartbeat, beat, new)
  score(a, new, rest, numbers_of(a, groups), country, beat)
  if left then redis.call('ZADD', a.left, left, new) end
  redis.call('SADD', a.attended, new)
  redis.call('HSET', a.viewers, new, note)
end)

-- rename_room: the same for the viewing sessions of a place.   KEYS starts, ends   ARGV old, new
command('rename_room', function(keys, args)
  local old, new = args[1], args[2]
  local start, stop = redis.call('ZSCORE', keys[1], old), redis.call('ZSCORE', keys[2], old)
  local theirs = redis.call('ZSCORE', keys[2], new)
  if not start or not stop then return end
  if not theirs or tonumber(stop) > tonumber(theirs) then
    redis.call('ZADD', keys[1], start, new)
    redis.call('ZADD', keys[2], stop, new)
  end
  redis.call('ZREM', keys[1], old)
  redis.call('ZREM', keys[2], old)
end)

local function require_silence(a, before)
  if last_beat(a) >= before then fail('still_live', 'Somebody has come back.') end
end

-- retire_rooms: raw viewing sessions of a silent event go, some places at a time; they are in SQL.
-- KEYS the event's 13   ARGV event, silent since, place …
command('retire_rooms', function(keys, args)
  local e, v = whole_event(keys), {event = args[1]}
  require_silence(e, tonumber(args[2]))
  for i = 3, #args do
    redis.call('UNLINK', start_key(v, args[i]), end_key(v, args[i]))
    redis.call('HDEL', e.rooms, args[i])
  end
end)

-- retire: an audience's raw keys go; what was declared stays.
-- KEYS the audience's 10   ARGV silent since, whether to keep what was declared
command('retire', function(keys, args)
  local a = audience(keys, 1)
  require_silence(a, tonumber(args[1]))
  local kept = redis.call('HMGET', a.info, 'declared', 'title', 'event')
  redis.call('UNLINK', unpack(keys))
  if args[2] ~= '1' then return end
  for i, name in ipairs({'declared', 'title', 'event'}) do
    if kept[i] then redis.call('HSET', a.info, name, kept[i]) end
  end
end)
