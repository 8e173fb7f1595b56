-- Cached database rows. An item owns `inv:<item>`, the copy, and `shop:row:<item>`, its state.
-- A scheduled row stays until a worker copies it again. Any other row expires after a few seconds; its last version
-- stays in `old` and is served while one reader loads the row from the database.
--
-- `delay:` and `schedule:` are source data; other services write them by the document. A row is scheduled while it is in both.

local NONE_MS = 2000 -- how long a missing row is remembered as missing
local OLD_MS = 3600000 -- how long an expired row may still be served
local REMOVED_MS = 60000 -- longer than any database read
-- A worker copies a scheduled row within a second of its due time. After that the row is marked as stale.
local LATE_MS = 1000
-- After that a reader loads it: the worker is down, or another service has removed the row from the schedule.
local MAX_LATE_MS = 5000

-- Reply {json or false, '1' if stale, why}. `why` is '', 'late' (the worker must copy it), 'expired' or 'missing' (a reader
-- should load it) or 'none' (the database has no such row).
local function read_row(inv, row, at)
  local json = redis.pcall('GET', inv)
  if type(json) == 'table' then json = false end -- another service wrote another type: it is loaded and replaced
  local fresh_until, old, none_until, delay = unpack(redis.call('HMGET', row, 'until', 'old', 'none', 'delay'))
  if json then
    if not fresh_until or tonumber(fresh_until) >= at then return {json, '0', ''} end
    return {json, '1', delay and tonumber(fresh_until) + MAX_LATE_MS >= at and 'late' or 'expired'}
  end
  if none_until and tonumber(none_until) >= at then return {false, '0', 'none'} end
  if old then return {old, '1', 'expired'} end
  return {false, '0', 'missing'}
end

-- row: read a cached row.
-- KEYS inv, row   ARGV now_ms   Reply as of read_row, then until when it is fresh (or ''), and now_ms
query('row', function(keys, args)
  local at = now(args[1])
  local reply = read_row(keys[1], keys[2], at)
  reply[4], reply[5] = redis.call('HGET', keys[2], 'until') or '', text(at)
  return reply
end)

-- claim_row: ask for the right to load a row from the database.
-- KEYS inv, row   ARGV reader, now_ms, lease_ms   Reply 'yours', 'busy', or 'there' if another reader has just loaded it
command('claim_row', function(keys, args)
  local at = now(args[2])
  local lease_until = (redis.call('HGET', keys[2], 'busy') or ''):match('^(%d+) ')
  -- A lease that ends later than a new one would was taken before the clock was set back.
  if lease_until and tonumber(lease_until) > at and tonumber(lease_until) <= at + args[3] then return 'busy' end
  local why = read_row(keys[1], keys[2], at)[3]
  if why ~= 'expired' and why ~= 'missing' then return 'there' end
  redis.call('HSET', keys[2], 'busy', text(at + args[3]) .. ' ' .. args[1])
  if redis.call('PTTL', keys[2]) == -1 and redis.call('HEXISTS', keys[2], 'delay') == 0 then
    redis.call('PEXPIRE', keys[2], OLD_MS)
  end
  return 'yours'
end)

-- Ends the claim of a reader. Returns whether it still had one.
local function release_row(row, reader)
  local holder = (redis.call('HGET', row, 'busy') or ''):match(' (.*)$')
  if holder ~= reader then return false end
  redis.call('HDEL', row, 'busy')
  return true
end

-- release_row: give up a claim, after the database failed.   KEYS inv, row   ARGV reader
command('release_row', function(keys, args)
  release_row(keys[2], args[1])
end)

-- Returns the seconds between two copies of a row, or nil if it is not scheduled.
local function scheduled_delay(item)
  local delay = redis.call('ZSCORE', key.row_delays(), item)
  if delay and tonumber(delay) > 0 and redis.call('ZSCORE', key.row_schedule(), item) then return delay end
end

-- Turns a row into one that is not scheduled.
local function forget_schedule(inv, row)
  redis.call('HDEL', row, 'delay', 'due')
  if redis.call('PTTL', inv) == -1 then redis.call('PEXPIRE', inv, BRIEF_MS) end
  if redis.call('PTTL', row) == -1 then redis.call('PEXPIRE', row, OLD_MS) end
end

-- fill_row: store a row as the database has it.
-- KEYS inv, row
-- ARGV item, json ('' if there is no such row), version or '', now_ms, delay, reader or '', since_ms or ''
-- `delay` is '' if the row is not scheduled, and '?' on one server to look it up. `reader` claimed the row. `since_ms`, the start of
-- the copy, is given by a worker.   Reply 1 if it was written
command('fill_row', function(keys, args)
  local inv, row, item = keys[1], keys[2], args[1]
  local json, version, at, delay, reader, since = args[2], args[3], now(args[4]), args[5], args[6], args[7]
  if reader == '' then
    -- The caller has just written the row to the database, so it is newer than what a reader loads now.
    redis.call('HDEL', row, 'busy')
  elseif not release_row(row, reader) and json == '' then
    return 0
  end
  local stored_version, removed = unpack(redis.call('HMGET', row, 'version', 'removed'))
  if since ~= '' and removed and tonumber(since) <= tonumber(removed) then return 0 end
  -- A slow reader must not replace a newer version.
  if version ~= '' and stored_version and tonumber(stored_version) > tonumber(version) then return 0 end
  if json == '' then
    redis.call('DEL', inv, row)
    redis.call('HSET', row, 'none', text(at + NONE_MS))
    redis.call('PEXPIRE', row, NONE_MS)
    return 1
  end
  if delay == '?' then delay = scheduled_delay(item) or '' end
  if version ~= '' then redis.call('HSET', row, 'version', version) end
  if delay ~= '' then
    redis.call('SET', inv, json)
    redis.call('HDEL', row, 'old', 'none')
    redis.call('HSET', row, 'at', text(at), 'until', text(at + delay * 1000 + LATE_MS), 'delay', delay)
    redis.call('PERSIST', row)
  else
    redis.call('SET', inv, json, 'PX', BRIEF_MS)
    redis.call('HDEL', row, 'none', 'delay', 'due')
    redis.call('HSET', row, 'at', text(at), 'until', text(at + BRIEF_MS), 'old', json)
    redis.call('PEXPIRE', row, OLD_MS)
  end
  return 1
end)

-- scheduled: `delay:` and `schedule:` of a row.
projection('scheduled', function(item)
  local delay, due = unpack(redis.call('HMGET', key.row_state(item), 'delay', 'due'))
  if not delay then
    return {{'ZREM', key.row_delays(), item}, {'ZREM', key.row_schedule(), item}}
  end
  return {{'ZADD', key.row_delays(), delay, item}, {'ZADD', key.row_schedule(), tonumber(due) / 1000, item}}
end)

-- schedule: copy a row every `delay` seconds from now on; 0 or less removes it from the cache.
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

-- claim_due: give due rows to one worker. No other worker gets them until the lease is over.
-- KEYS schedule   ARGV now_ms, lease_s, limit   Reply {now_s, claim, when the next row is due or '', item, …}
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

-- next_due: set when claimed rows are due again. A row that was rescheduled or removed meanwhile stays as it is.
-- KEYS schedule   ARGV claim, then item, due_s, …
command('next_due', function(keys, args)
  local claim = tonumber(args[1])
  for i = 2, #args, 2 do
    local item, due = args[i], args[i + 1]
    if tonumber(redis.call('ZSCORE', keys[1], item) or '') == claim then redis.call('ZADD', keys[1], due, item) end
  end
end)
