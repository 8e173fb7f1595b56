-- Rate limits, by the generic cell rate algorithm (GCRA).
--
-- A subject's whole state is one moment: when everything it has taken so far would be paid off, at one request per
-- interval. A request is let through if that moment, moved on by one interval, is at most a window away. So a subject
-- may spend its whole quota at once and then gets it back evenly; there is no edge of a window at which twice the
-- quota fits. The key expires at that very moment, for then it says nothing any more.
--
-- On one server a request's user and address come in one call, and both are counted or neither. On a cluster they live
-- in different slots, so they come in two calls; who was counted although the other refused is given back.
--
-- Times are whole microseconds: a thousand intervals added up must come to exactly a window, not to a hair more.

local function quota(count, window_ms)
  local window = tonumber(window_ms) * 1000
  return window, math.floor(window / tonumber(count))
end

local function paid_off(noted, at, window)
  local moment = tonumber(noted or at)
  -- Nobody owes more than a window: such a moment was written by a clock that ran ahead, and is forgotten.
  if moment > at + window then return at end
  return math.max(at, moment)
end

local function owe_until(subject, at, moment)
  if moment <= at then return redis.call('DEL', subject) end
  redis.call('SET', subject, text(moment), 'PX', math.ceil((moment - at) / 1000))
end

-- limits_spend: count one request against every subject, or against none if one of them has to wait.
-- KEYS subject, …   ARGV now_ms ('' = the server's clock), then for each subject count, window_ms
-- Reply for each subject {requests left, ms until its quota is whole again, ms to wait (0: it may go)}
command('spend', function(keys, args)
  local at, moments, reply, refused = now(args[1]) * 1000, {}, {}, false
  for i, noted in ipairs(redis.call('MGET', unpack(keys))) do
    local window, interval = quota(args[2 * i], args[2 * i + 1])
    local before = paid_off(noted, at, window)
    local after = before + interval
    local wait = math.max(0, after - window - at)
    if wait > 0 then
      refused = true
      reply[i] = {0, math.ceil((before - at) / 1000), math.ceil(wait / 1000)}
    else
      moments[i] = after
      reply[i] = {math.floor((at + window - after) / interval), math.ceil((after - at) / 1000), 0}
    end
  end
  if not refused then
    for i, subject in ipairs(keys) do owe_until(subject, at, moments[i]) end
  end
  return reply
end)

-- limits_give_back: one request that was counted should not have been.
-- KEYS subject   ARGV now_ms, count, window_ms
command('give_back', function(keys, args)
  local at = now(args[1]) * 1000
  local window, interval = quota(args[2], args[3])
  owe_until(keys[1], at, paid_off(redis.call('GET', keys[1]), at, window) - interval)
end)
