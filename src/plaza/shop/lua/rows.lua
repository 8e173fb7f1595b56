-- Database rows, copied. An item owns `inv:<item>`, the copy, and `shop:row:<item>`, what is known of it.
-- A scheduled row stays until the worker copies it again; any other expires after a few seconds, and its last state
-- stays in `old`, for those who come while one of them reads the database.

local BRIEF_MS = 5000 -- how long a row that nobody scheduled is taken for fresh
local NONE_MS = 2000 -- how long a row that is not there is taken to be missing
local KEPT_MS = 3600000 -- how long an old row may still be served
local REMOVED_MS = 60000 -- longer than any reading of the database
-- A scheduled row is copied within a second of being due; then it is late, and its readers should know.
local LATE_MS = 1000

-- The row, whether it is old, and whether someone should read the database for it: {json or false, '0' or '1', why}
-- where `why` is '', 'late' (the worker's business), 'expired', 'missing' or 'none'.
local function read_row(inv, row, at)
  local json = redis.call('GET', inv)
  local till, old, none, delay = unpack(redis.call('HMGET', row, 'until', 'old', 'none', 'delay'))
  if json then
    if not till or tonumber(till) >= at then return {json, '0', ''} end
    return {json, '1', delay and 'late' or 'expired'}
  end
  if none and tonumber(none) >= at then return {false, '0', 'none'} end
  if old then return {old, '1', 'expired'} end
  return {false, '0', 'missing'}
end

-- row: a row.   KEYS inv, row   ARGV now_ms   Reply as of read_row, then until when it is fresh (or ''), and now_ms
query('row', function(keys, args)
  local at = now(args[1])
  local reply = read_row(keys[1], keys[2], at)
  reply[4], reply[5] = redis.call('HGET', keys[2], 'until') or '', text(at)
  return reply
end)

-- claim_row: someone wants to read a row from the database.
-- KEYS inv, row   ARGV who, now_ms, lease_ms   Reply 'yours', 'busy', or 'there' if somebody has just read it
command('claim_row', function(keys, args)
  local at = now(args[2])
  local till = (redis.call('HGET', keys[2], 'busy') or ''):match('^(%d+) ')
  if till and tonumber(till) > at then return 'busy' end
  local why = read_row(keys[1], keys[2], at)[3]
  if why ~= 'expired' and why ~= 'missing' then return 'there' end
  redis.call('HSET', keys[2], 'busy', text(at + args[3]) .. ' ' .. args[1])
  if redis.call('PTTL', keys[2]) == -1 and redis.call('HEXISTS', keys[2], 'delay') == 0 then
    redis.call('PEXPIRE', keys[2], KEPT_MS)
  end
  return 'yours'
end)

-- Ends the claim of `who`. Returns whether it still had one.
local function release_row(row, who)
  local by = (redis.call('HGET', row, 'busy') or ''):match(' (.*)$')
  if by ~= who then return false end
  redis.call('HDEL', row, 'busy')
  return true
end

-- release_row: whoever claimed a row could not read it.   KEYS inv, row   ARGV who
command('release_row', function(keys, args)
  release_row(keys[2], args[1])
end)

-- fill_row: a row as the database has it.
-- KEYS inv, row   ARGV json ('' if there is no such row), version or '', now_ms, delay or '', who or '', since_ms or ''
-- `who` claimed the row, `delay` is given by the worker, `since_ms` is when it began.   Reply 1 if it was written
command('fill_row', function(keys, args)
  local inv, row = keys[1], keys[2]
  local json, version, at, delay, who, since = args[1], args[2], now(args[3]), args[4], args[5], args[6]
  if who == '' then
    -- Who has just written it to the database knows better than a reader who began before.
    redis.call('HDEL', row, 'busy')
  elseif not release_row(row, who) and json == '' then
    return 0
  end
  local there, known, removed = unpack(redis.call('HMGET', row, 'version', 'delay', 'removed'))
  if since ~= '' and removed and tonumber(since) <= tonumber(removed) then return 0 end
  -- What was read before another wrote must not replace what that one wrote.
  if version ~= '' and there and tonumber(there) > tonumber(version) then return 0 end
  if json == '' then
    redis.call('DEL', inv, row)
    redis.call('HSET', row, 'none', text(at + NONE_MS))
    redis.call('PEXPIRE', row, NONE_MS)
    return 1
  end
  if delay == '' then delay = known or '' end
  if version ~= '' then redis.call('HSET', row, 'version', version) end
  if delay ~= '' then
    redis.call('SET', inv, json)
    redis.call('HDEL', row, 'old', 'none')
    redis.call('HSET', row, 'at', text(at), 'until', text(at + delay * 1000 + LATE_MS), 'delay', delay)
    redis.call('PERSIST', row)
  else
    redis.call('SET', inv, json, 'PX', BRIEF_MS)
    redis.call('HDEL', row, 'none')
    redis.call('HSET', row, 'at', text(at), 'until', text(at + BRIEF_MS), 'old', json)
    redis.call('PEXPIRE', row, KEPT_MS)
  end
  return 1
end)

-- scheduled: whether and how often a row is copied.
projection('scheduled', function(item)
  local delay, due = unpack(redis.call('HMGET', key.shop_row(item), 'delay', 'due'))
  if not delay then
    return {{'ZREM', key.shop_delays(), item}, {'ZREM', key.shop_schedule(), item}}
  end
  return {{'ZADD', key.shop_delays(), delay, item}, {'ZADD', key.shop_schedule(), tonumber(due) / 1000, item}}
end)

-- schedule: a row is copied every so many seconds from now on; with 0 or less it leaves the cache.
-- KEYS inv, row   ARGV item, delay, now_ms
command('schedule', function(keys, args)
  local inv, row = keys[1], keys[2]
  local item, delay, at = args[1], tonumber(args[2]), now(args[3])
  if delay > 0 then
    redis.call('HSET', row, 'delay', args[2], 'due', text(at))
    redis.call('HDEL', row, 'removed')
    redis.call('PERSIST', row)
    redis.call('PERSIST', inv) -- it stays until the worker has copied it
  else
    redis.call('DEL', inv, row)
    redis.call('HSET', row, 'removed', text(at))
    redis.call('PEXPIRE', row, REMOVED_MS)
  end
  project('scheduled', item)
end)

-- claim_due: some rows that are due, for one worker: nobody else gets them until the lease is over.
-- KEYS schedule   ARGV now_ms, lease_s, how many   Reply {now_s, claim, when the next is due or '', item, …}
command('claim_due', function(keys, args)
  local at = now(args[1]) / 1000
  local due = redis.call('ZRANGE', keys[1], '-inf', text(at), 'BYSCORE', 'LIMIT', 0, args[3])
  local claim = text(at + args[2])
  local moved = {}
  for _, item in ipairs(due) do
    moved[#moved + 1] = claim
    moved[#moved + 1] = item
  end
  if #moved > 0 then redis.call('ZADD', keys[1], unpack(moved)) end
  local first = redis.call('ZRANGE', keys[1], 0, 0, 'WITHSCORES')
  return {text(at), claim, first[2] or '', unpack(due)}
end)

-- next_due: when claimed rows are due again. One that was scheduled or taken off by someone else meanwhile is left alone.
-- KEYS schedule   ARGV claim, then item, when, …
command('next_due', function(keys, args)
  local claim = tonumber(args[1])
  for i = 2, #args, 2 do
    local item, at = args[i], args[i + 1]
    if tonumber(redis.call('ZSCORE', keys[1], item) or '') == claim then redis.call('ZADD', keys[1], at, item) end
  end
end)
