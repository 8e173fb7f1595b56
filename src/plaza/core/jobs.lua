-- Leases and the timers that run under them. Every function is given the keys of one job.

-- What is kept at a lease is the token of the run that holds it.
local function holds(lease, token)
  return redis.call('GET', lease) == token
end

local function give_lease(lease, fence_key, lease_ms)
  local token = text(redis.call('INCR', fence_key))
  redis.call('SET', lease, token, 'NX', 'PX', lease_ms)
  return token
end

-- jobs_lease: take a lease that nobody holds.
-- KEYS lease, fence   ARGV lease_ms   Reply {token} or {'', ms until it runs out}
command('lease', function(keys, args)
  local left = redis.call('PTTL', keys[1])
  if left ~= -2 then return {'', left} end
  return {give_lease(keys[1], keys[2], args[1])}
end)

-- jobs_renew: hold it longer. One that ran out is taken again, unless somebody else has had it since.
-- KEYS lease, fence   ARGV token, lease_ms   Reply 1, or 0 if it is lost
command('renew', function(keys, args)
  if redis.call('GET', keys[2]) ~= args[1] then return 0 end
  redis.call('SET', keys[1], args[1], 'PX', args[2])
  return 1
end)

-- jobs_release: give it back.   KEYS lease   ARGV token
command('release', function(keys, args)
  if holds(keys[1], args[1]) then redis.call('DEL', keys[1]) end
  return 1
end)

-- When a job is due after `t`: on its grid, so that what was missed is run once and the rhythm stays.
local function after(t, due, every)
  return due + every * (math.floor((t - due) / every) + 1)
end

-- The wait before the next try, doubled with every failure, never longer than the job's own rhythm.
local function retry_wait(failures, retry, every)
  return math.min(every, retry * 2 ^ math.min(failures - 1, 20), 900000)
end

-- jobs_start: run a job, if it is due and nobody runs it.
-- KEYS lease, fence, job   ARGV now, lease_ms, every_ms, retry_ms, worker   Reply {token} or {'', ms to wait}
command('start', function(keys, args)
  local lease, fence_key, job = keys[1], keys[2], keys[3]
  local t, every, retry = now(args[1]), tonumber(args[3]), tonumber(args[4])
  local left = redis.call('PTTL', lease)
  if left ~= -2 then return {'', left} end
  local known = redis.call('HMGET', job, 'state', 'next_at')
  local due = tonumber(known[2] or t)
  if known[1] == 'running' then
    -- Its worker died. That may be the job's own doing, so from the second time on it has to wait like a failure.
    local failures = redis.call('HINCRBY', job, 'failures', 1)
    if failures > 1 then due = t + retry_wait(failures - 1, retry, every) end
    redis.call('HSET', job, 'state', 'lost', 'error', 'Its worker died.', 'next_at', text(due))
  end
  -- Later than its rhythm allows: the rhythm was changed, or a clock was. Then it is due.
  if due > t and due <= t + every then return {'', text(due - t)} end
  local token = give_lease(lease, fence_key, args[2])
  redis.call('HSET', job, 'state', 'running', 'started_at', text(t), 'next_at', text(math.min(due, t)), 'worker', args[5])
  redis.call('HINCRBY', job, 'runs', 1)
  return {token}
end)

-- jobs_finish: note how a run ended, and when the next one is due. Refused if another run has taken over.
-- KEYS lease, fence, job   ARGV now, token, every_ms, at_ms ('' for none), retry_ms, duration_ms, 'done'|'failed', words
-- Reply ms until the next run
command('finish', function(keys, args)
  local lease, fence_key, job = keys[1], keys[2], keys[3]
  local t, every = now(args[1]), tonumber(args[3])
  fence(fence_key, args[2])
  if holds(lease, args[2]) then redis.call('DEL', lease) end
  local due
  if args[7] == 'done' then
    local grid = tonumber(args[4]) or tonumber(redis.call('HGET', job, 'next_at') or t)
    due = after(t, grid, every)
    redis.call('HSET', job, 'result', args[8], 'error', '', 'failures', 0)
  else
    due = t + retry_wait(redis.call('HINCRBY', job, 'failures', 1), tonumber(args[5]), every)
    redis.call('HSET', job, 'error', args[8])
  end
  redis.call('HSET', job, 'state', args[7], 'ended_at', text(t), 'duration_ms', args[6], 'next_at', text(due))
  return text(due - t)
end)

-- jobs_stop: a run was broken off because its worker stops. It is due again at once, and that is no failure.
-- KEYS lease, fence, job   ARGV token
command('stop', function(keys, args)
  if redis.call('GET', keys[2]) ~= args[1] then return 0 end
  if holds(keys[1], args[1]) then redis.call('DEL', keys[1]) end
  redis.call('HSET', keys[3], 'state', 'stopped')
  return 1
end)
