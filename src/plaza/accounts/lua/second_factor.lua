-- Second factors. A user owns `accounts:<username>:mfa`. A code and a recovery code each work once.

-- accounts_use_totp_step: accept a time step that is newer than the last one used, so that a code cannot be replayed.
-- KEYS mfa   ARGV step   Reply 1 if accepted, else 0
command('use_totp_step', function(keys, args)
  local last = tonumber(redis.call('HGET', keys[1], 'last_step') or 0)
  if tonumber(args[1]) <= last or redis.call('HEXISTS', keys[1], 'totp_secret') == 0 then return 0 end
  redis.call('HSET', keys[1], 'last_step', args[1])
  return 1
end)

-- accounts_enable_totp: make the pending secret the one in use, with new recovery codes.
-- KEYS mfa   ARGV pending secret, step, now_ms, digest of a recovery code, …   Reply 1, or 0 if it is not pending any more
command('enable_totp', function(keys, args)
  local mfa = keys[1]
  if redis.call('HGET', mfa, 'pending_secret') ~= args[1] then return 0 end
  redis.call('DEL', mfa)
  redis.call('HSET', mfa, 'totp_secret', args[1], 'last_step', args[2], 'enabled_at', args[3])
  for i = 4, #args do redis.call('HSET', mfa, 'recovery:' .. args[i], '1') end
  return 1
end)
