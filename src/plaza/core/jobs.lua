-- Leases, and the jobs that run under them. Every function gets the keys of one job.

-- The value of a lease is the token of the run that has it.
local function has_lease(lease, token)
  return redis.call('GET', lease) == token
end

-- A token is higher than all before, also after a failover that lost the last one: otherwise the next run would get the same
-- token as a run that goes on, and neither would be fenced.
local function give_lease(lease, fence_key, lease_ms)
  local token = next_number(redis.call('GET', fence_key))
  redis.call('SET', fence_key, token)
  redis.call('SET', lease, token, 'NX', 'PX', lease_ms)
  return token
end

-- Returns the ms until a lease expires, or -2 if no process has it. Valkey's clock may have been set back since it was
-- taken: then it would last longer by that.
local function lease_left(lease, lease_ms)
  local left = redis.call('PTTL', lease)
  if left <= tonumber(lease_ms) then return left end
  redis.call('PEXPIRE', lease, lease_ms)
  return tonumber(lease_ms)
end

-- jobs_lease: take a lease that no process has.
-- KEYS lease, fence   ARGV lease_ms   Reply {token}, or {'', ms until it expires}
command('lease', function(keys, args)
  local left = lease_left(keys[1], args[1])
  if left ~= -2 then return {'', left} end
  return {give_lease(keys[1], keys[2], args[1])}
end)

-- jobs_renew: extend a lease. An expired one is taken again, unless another process has had it since.
-- KEYS lease, fence   ARGV token, lease_ms   Reply 1, or 0 if it is lost
command('renew', function(keys, args)
  if redis.call('GET', keys[2]) ~= args[1] then return 0 end
  redis.call('SET', keys[1], args[1], 'PX', args[2])
  return 1
end)

-- jobs_release: give a lease back.   KEYS lease   ARGV token
command('release', function(keys, args)
  if has_lease(keys[1], args[1]) then redis.call('DEL', keys[1]) end
  return 1
end)

-- The next time after `t` at a whole number of intervals from `due`: missed runs are made up for once, not each.
local function next_due(t, due, every)
  return due + every * (math.floor((t - due) / every) + 1)
end

-- The wait before the next try: doubled after every failure, at most the job's own interval or 15 minutes.
local function retry_wait(failures, retry, every)
  return math.min(every, retry * 2 ^ math.min(failures - 1, 20), 900000)
end

-- jobs_start: start a job if it is due and not running.
-- KEYS lease, fence, job   ARGV now, lease_ms, every_ms, retry_ms, worker   Reply {token} or {'', ms to wait}
command('start', function(keys, args)
  local lease, fence_key, job = keys[1], keys[2], keys[3]
  local t, every, retry = now(args[1]), tonumber(args[3]), tonumber(args[4])
  local left = lease_left(lease, args[2])
  if left ~= -2 then return {'', left} end
  local known = redis.call('HMGET', job, 'state', 'next_at')
  local due = finite(known[2], t) -- an operator may have written anything
  if known[1] == 'running' then
    -- Its worker died. The job itself may be the cause, so from the second time on it waits as after a failure.
    local failures = redis.call('HINCRBY', job, 'failures', 1)
    if failures > 1 then due = t + retry_wait(failures - 1, retry, every) end
    redis.call('HSET', job, 'state', 'lost', 'error', 'Its worker died.', 'next_at', text(due))
  end
  -- More than one interval ahead: the interval or a clock was changed. Then it is due now.
  if due > t and due <= t + every then return {'', text(due - t)} end
  local token = give_lease(lease, fence_key, args[2])
  redis.call('HSET', job, 'state', 'running', 'started_at', text(t), 'next_at', text(math.min(due, t)), 'worker', args[5])
  redis.call('HINCRBY', job, 'runs', 1)
  return {token}
end)

-- jobs_finish: store how a run ended, and when the next one is due. Fails if another run has taken over.
-- KEYS lease, fence, job   ARGV now, token, every_ms, at_ms ('' for none), retry_ms, duration_ms, 'done'|'failed', text
-- Reply ms until the next run
command('finish', function(keys, args)
  local lease, fence_key, job = keys[1], keys[2], keys[3]
  local t, every = now(args[1]), tonumber(args[3])
  fence(fence_key, args[2])
  if has_lease(lease, args[2]) then redis.call('DEL', lease) end
  local due
  if args[7] == 'done' then
    local grid = tonumber(args[4]) or finite(redis.call('HGET', job, 'next_at'), t)
    due = next_due(t, grid, every)
    redis.call('HSET', job, 'result', args[8], 'error', '', 'failures', 0)
  else
    due = t + retry_wait(redis.call('HINCRBY', job, 'failures', 1), tonumber(args[5]), every)
    redis.call('HSET', job, 'error', args[8])
  end
  redis.call('HSET', job, 'state', args[7], 'ended_at', text(t), 'duration_ms', args[6], 'next_at', text(due))
  return text(due - t)
end)

-- jobs_stop: a run was cancelled because its worker stops. It is due again at once and does not count as failed.
-- KEYS lease, fence, job   ARGV token
command('stop', function(keys, args)
  if redis.call('GET', keys[2]) ~= args[1] then return 0 end
  if has_lease(keys[1], args[1]) then redis.call('DEL', keys[1]) end
  redis.call('HSET', keys[3], 'state', 'stopped')
  return 1
end)
