-- Repair commands of the audit.   KEYS a key of the owner   ARGV now_ms, then the ids that the header names

-- repair_row: the state of a row follows `delay:`, and `schedule:` is completed.   item
command('repair_row', function(keys, args) project('delay_check', args[2], args[1]) end)

-- delay_check: reads the delay of a row in `delay:`.
projection('delay_check', function(item, now_ms)
  return perform('check_delay', {key.row_delays()}, {item, now_ms})
end)

-- check_delay: KEYS delay   ARGV item, now_ms
command('check_delay', function(keys, args) project('delay_checked', args[1], args[2]) end)

-- delay_checked: gives the state of a row what `delay:` has.
projection('delay_checked', function(item, now_ms)
  local delay = redis.call('ZSCORE', key.row_delays(), item)
  local keys = {key.cached_row(item), key.row_state(item)}
  return perform('follow_delay', keys, {item, delay or '', now_ms})
end)

-- follow_delay: make the state of a row follow `delay:`. A row that only another service has gets no state.
-- KEYS inv, row   ARGV item, delay or '', now_ms
command('follow_delay', function(keys, args)
  local inv, row, item, delay = keys[1], keys[2], args[1], tonumber(args[2])
  if redis.call('EXISTS', row) == 0 then
    if delay then project(delay > 0 and 'due_now' or 'unscheduled', item, args[3]) end
    return
  end
  if not delay or delay <= 0 then
    forget_schedule(inv, row)
    if delay then project('unscheduled', item) end
    return
  end
  if tonumber(redis.call('HGET', row, 'delay') or '') ~= delay then redis.call('HSET', row, 'delay', args[2]) end
  if not tonumber(redis.call('HGET', row, 'due') or '') then redis.call('HSET', row, 'due', args[3]) end
  redis.call('PERSIST', row)
  project('in_schedule', item)
end)

-- in_schedule: adds a row with a delay to `schedule:`, if it is missing there.
projection('in_schedule', function(item)
  local due = redis.call('HGET', key.row_state(item), 'due')
  return due and {'ZADD', key.row_schedule(), 'NX', tonumber(due) / 1000, item}
end)

-- due_now: adds a row of another service to `schedule:`, if it is missing there.
projection('due_now', function(item, now_ms)
  return {'ZADD', key.row_schedule(), 'NX', tonumber(now_ms) / 1000, item}
end, 1)

-- unscheduled: removes a row with a delay of 0 or less, as a worker does.
projection('unscheduled', function(item)
  return {{'ZREM', key.row_delays(), item}, {'ZREM', key.row_schedule(), item}}
end)

-- repair_views: no score is above 0.   KEYS viewed   item
command('repair_views', function(keys, args)
  if tonumber(redis.call('ZSCORE', keys[1], args[2]) or 0) > 0 then redis.call('ZREM', keys[1], args[2]) end
end)
