-- Second factors: one-time codes, passkeys, and recovery codes for a lost device. A user owns `accounts:<username>:mfa`.
-- A code, a recovery code and a use of a passkey each work once.

local TOTP_FIELDS = {'pending_secret', 'totp_secret', 'last_step', 'enabled_at'}

local function starts_with(text, prefix)
  return string.sub(text, 1, #prefix) == prefix
end

-- Deletes the fields of a hash whose names start with a prefix. Returns how many there were.
local function drop_fields(mfa, prefix)
  local dropped = 0
  for _, field in ipairs(redis.call('HKEYS', mfa)) do
    if starts_with(field, prefix) then dropped = dropped + redis.call('HDEL', mfa, field) end
  end
  return dropped
end

local function count_passkeys(mfa)
  local count = 0
  for _, field in ipairs(redis.call('HKEYS', mfa)) do
    if starts_with(field, 'passkey:') then count = count + 1 end
  end
  return count
end

-- Replaces the recovery codes by those whose digests are the arguments from `first` on.
local function set_recovery_codes(mfa, args, first)
  drop_fields(mfa, 'recovery:')
  for i = first, #args do redis.call('HSET', mfa, 'recovery:' .. args[i], '1') end
end

-- Recovery codes without a second factor are of no use. Returns whether there is a second factor.
local function drop_if_unused(mfa)
  if redis.call('HEXISTS', mfa, 'totp_secret') == 1 or count_passkeys(mfa) > 0 then return 1 end
  drop_fields(mfa, 'recovery:')
  return 0
end

-- accounts_use_totp_step: accept a time step that is newer than the last one used, so that a code cannot be replayed. If the
-- last one is far ahead, the clock was set back: otherwise no code would work until it has caught up.
-- KEYS mfa   ARGV step   Reply 1 if accepted, else 0
command('use_totp_step', function(keys, args)
  local last = tonumber(redis.call('HGET', keys[1], 'last_step') or 0)
  local is_used = tonumber(args[1]) <= last and last - tonumber(args[1]) <= 4 * TOTP_STEPS_AROUND
  if is_used or redis.call('HEXISTS', keys[1], 'totp_secret') == 0 then return 0 end
  redis.call('HSET', keys[1], 'last_step', args[1])
  return 1
end)

-- accounts_enable_totp: make the pending secret the one in use, with new recovery codes.
-- KEYS mfa   ARGV pending secret, step, now_ms, digest of a recovery code, …   Reply 1, or 0 if it is not pending any more
command('enable_totp', function(keys, args)
  local mfa = keys[1]
  if redis.call('HGET', mfa, 'pending_secret') ~= args[1] then return 0 end
  redis.call('HDEL', mfa, 'pending_secret')
  redis.call('HSET', mfa, 'totp_secret', args[1], 'last_step', args[2], 'enabled_at', args[3])
  set_recovery_codes(mfa, args, 4)
  return 1
end)

-- accounts_disable_totp: turn one-time codes off.   KEYS mfa   Reply 1 if another second factor is left, else 0
command('disable_totp', function(keys)
  redis.call('HDEL', keys[1], unpack(TOTP_FIELDS))
  return drop_if_unused(keys[1])
end)

-- accounts_renew_recovery_codes: replace the recovery codes.
-- KEYS mfa   ARGV digest of a recovery code, …   Reply 1, or 0 without a second factor
command('renew_recovery_codes', function(keys, args)
  if drop_if_unused(keys[1]) == 0 then return 0 end
  set_recovery_codes(keys[1], args, 1)
  return 1
end)

-- accounts_user_handle: return the id by which authenticators know a user, and store it first if there is none.
-- KEYS mfa   ARGV a new id   Reply the id
command('user_handle', function(keys, args)
  redis.call('HSETNX', keys[1], 'user_handle', args[1])
  return redis.call('HGET', keys[1], 'user_handle')
end)

-- accounts_add_passkey: store a passkey. The first second factor of a user also gets recovery codes.
-- KEYS mfa   ARGV digest of its id, passkey, most passkeys, digest of a recovery code, …
-- Reply 'recovery' if the recovery codes count, 'added' if there are some already, 'full', or 'known'
command('add_passkey', function(keys, args)
  local mfa, field = keys[1], 'passkey:' .. args[1]
  if redis.call('HEXISTS', mfa, field) == 1 then return 'known' end
  if count_passkeys(mfa) >= tonumber(args[3]) then return 'full' end
  local is_first = drop_if_unused(mfa) == 0
  redis.call('HSET', mfa, field, args[2])
  if is_first then set_recovery_codes(mfa, args, 4) end
  return is_first and 'recovery' or 'added'
end)

-- accounts_use_passkey: record a use. A counter that does not rise belongs to a copy of the passkey: the use is refused.
-- Authenticators that sync passkeys between devices always count 0.
-- KEYS mfa   ARGV digest of its id, its counter, now_ms   Reply 1 if accepted, else 0
command('use_passkey', function(keys, args)
  local mfa, field, count = keys[1], 'passkey:' .. args[1], tonumber(args[2])
  local stored = redis.call('HGET', mfa, field)
  if not stored then return 0 end
  local passkey = cjson.decode(stored)
  if (count > 0 or passkey.sign_count > 0) and count <= passkey.sign_count then return 0 end
  passkey.sign_count, passkey.last_used_at = count, tonumber(args[3])
  redis.call('HSET', mfa, field, cjson.encode(passkey))
  return 1
end)

-- accounts_rename_passkey: rename a passkey.   KEYS mfa   ARGV digest of its id, name   Reply the passkey, or nothing
command('rename_passkey', function(keys, args)
  local mfa, field = keys[1], 'passkey:' .. args[1]
  local stored = redis.call('HGET', mfa, field)
  if not stored then return nil end
  local passkey = cjson.decode(stored)
  passkey.name = args[2]
  redis.call('HSET', mfa, field, cjson.encode(passkey))
  return cjson.encode(passkey)
end)

-- accounts_remove_passkey: remove a passkey.   KEYS mfa   ARGV digest of its id   Reply 1, or 0 if there is none
command('remove_passkey', function(keys, args)
  local removed = redis.call('HDEL', keys[1], 'passkey:' .. args[1])
  drop_if_unused(keys[1])
  return removed
end)
