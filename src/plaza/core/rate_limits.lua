-- Rate limits, by the generic cell rate algorithm (GCRA).
--
-- The state of a subject (a user or an address) is one time: when all its requests are paid off, at one request per
-- interval. A request is accepted if that time plus one interval is at most one window away. So a subject may use its
-- quota at once and gets it back evenly; there is no window boundary at which twice the quota fits. The key expires at
-- that time, because it has no meaning after it.
--
-- On one server a request's user and address come in one call, and both are counted or neither. On a cluster they are
-- in different slots and come in two calls; if one refuses, the caller gives the other's request back.
--
-- Times are whole microseconds, so that the intervals of a quota add up to exactly one window.

local function quota(count, window_ms)
  local window = tonumber(window_ms) * 1000
  return window, math.floor(window / tonumber(count))
end

local function paid_off(stored, at, window)
  local time = tonumber(stored or at)
  -- More than a window ahead: a wrong clock wrote it. It is ignored.
  if time > at + window then return at end
  return math.max(at, time)
end

local function store(subject, at, time)
  if time <= at then return redis.call('DEL', subject) end
  redis.call('SET', subject, text(time), 'PX', math.ceil((time - at) / 1000))
end

-- The time that some requests take to be paid off: at most a window, so that a full quota pays for any number.
local function price(requests, window, interval)
  return math.min(interval * tonumber(requests), window)
end

-- limits_spend: count requests against every subject, or against none if one of them has to wait.
-- KEYS subject, …   ARGV now_ms ('' = the server's clock), requests, then for each subject count, window_ms
-- Reply for each subject {requests left, ms until its quota is full again, ms to wait (0: accepted)}
command('spend', function(keys, args)
  local at, times, reply, refused = now(args[1]) * 1000, {}, {}, false
  for i, stored in ipairs(redis.call('MGET', unpack(keys))) do
    local window, interval = quota(args[2 * i + 1], args[2 * i + 2])
    local before = paid_off(stored, at, window)
    local after = before + price(args[2], window, interval)
    local wait = math.max(0, after - window - at)
    if wait > 0 then
      refused = true
      reply[i] = {0, math.ceil((before - at) / 1000), math.ceil(wait / 1000)}
    else
      times[i] = after
      reply[i] = {math.floor((at + window - after) / interval), math.ceil((after - at) / 1000), 0}
    end
  end
  if not refused then
    for i, subject in ipairs(keys) do store(subject, at, times[i]) end
  end
  return reply
end)

-- limits_give_back: undo the count of requests.
-- KEYS subject   ARGV now_ms, requests, count, window_ms
command('give_back', function(keys, args)
  local at = now(args[1]) * 1000
  local window, interval = quota(args[3], args[4])
  store(keys[1], at, paid_off(redis.call('GET', keys[1]), at, window) - price(args[2], window, interval))
end)
