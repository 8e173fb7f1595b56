-- Users: accounts, sessions, profiles and deletion. The owner is a username.

local function exists(k)
  return redis.call('EXISTS', k) == 1
end

local function require_profile(user)
  if not exists(user) then fail('no_profile', 'You have no profile. Register first.') end
end

-- Changes a counter after its set has changed from one size to another. A counter that has the old size gets the new one.
-- Otherwise another service is between its own change of the set and that of the counter: the difference is added, so
-- that both changes count. If the hash does not exist, its owner was deleted: write nothing. `stored` is the counter, if
-- the caller has read it. Returns what was written.
local function change_count(hash, field, before, after, stored)
  if before == after then return end
  if stored == nil then stored = redis.call('HGET', hash, field) end
  local count = text(after)
  if stored and stored ~= text(before) and stored:find('^%d+$') and #stored < 16 then
    count = text(math.max(0, tonumber(stored) + after - before))
  elseif not stored and not exists(hash) then
    return
  end
  redis.call('HSET', hash, field, count)
  return count
end

-- Replaces the time of a member if `source` is 'sync_with_time'. Returns whether it changed.
local function update_time(recent, member, at, source)
  if source ~= 'sync_with_time' then return false end
  if tonumber(redis.call('ZSCORE', recent, member)) == tonumber(at) then return false end
  redis.call('ZADD', recent, at, member)
  return true
end

-- Returns the origin of an event, from the argument of a command that sync, an import or a renaming gives.
local function origin_of(source)
  if not source then return nil end
  return source == 'rename' and source or 'import'
end

-- Returns a user's role from the profile's field. Another service may have written the profile: without a valid role it
-- is `user`.
local function role_from(user, role)
  if IS_ROLE[role] then return role end
  return exists(user) and 'user' or nil
end

local function role_of(user) return role_from(user, redis.call('HGET', user, 'role')) end

projection('leader', function(name)
  local board = key.models_top_engagement()
  if role_of(key.user(name)) ~= 'model' then return {'ZREM', board, name} end
  return {'ZADD', board, text(finite(redis.call('HGET', key.user_points(name), 'total'), 0)), name}
end)

-- Without a valid `created_at`, a user keeps the score that a registry has, or gets 0.
projection('registries', function(name)
  local role = role_of(key.user(name))
  local created = finite(redis.call('HGET', key.user(name), 'created_at'), nil)
  local function entry(registry, wanted)
    if role ~= wanted then return {'ZREM', registry, name} end
    if created then return {'ZADD', registry, text(math.floor(created)), name} end
    return {'ZADD', registry, 'NX', 0, name}
  end
  return {entry(key.users_regular(), 'user'), entry(key.users_models(), 'model'), projections.leader(name)}
end)

-- Returns the number of changes of the fields that posts copy. Earlier releases stored it in the profile's field
-- `version`.
local function version_from(name, field)
  return math.floor(finite(redis.call('GET', key.user_version(name)) or field, 0))
end

local function profile_version(name) return version_from(name, redis.call('HGET', key.user(name), 'version')) end

-- Queues the update of the profile copies in older posts.
projection('restyle', function(name)
  if not exists(key.user(name)) or not exists(key.user_posts(name)) then return {'HDEL', key.users_restyle(), name} end
  return {'HSET', key.users_restyle(), name, text(profile_version(name)) .. '|'}
end)

projection('revocation', function(name, at)
  return {'ZADD', key.token_cutoffs(), 'GT', at, name}
end, 1)

-- Ends access tokens; sessions stay.
projection('token_revocation', function(name, at)
  return {'ZADD', key.token_cutoffs(), 'GT', at, name .. '@tokens'}
end, 1)

-- Ends the access tokens of one session.
projection('ended_session', function(id, at)
  return {'ZADD', key.ended_sessions(), 'GT', at, id}
end, 1)

projection('user_leaving', function(name)
  local since = redis.call('GET', key.user_leaving(name))
  if not since then return {'ZREM', key.users_leaving(), name} end
  return {'ZADD', key.users_leaving(), since, name}
end)

-- Ends a session: a family of refresh tokens, and the access tokens that it got. Returns whether there was one.
local function end_family(auth, family, at)
  if redis.call('HDEL', auth, family) == 0 then return false end
  project('ended_session', string.sub(family, 8), at)
  return true
end

-- Deletes expired families of refresh tokens, and ends those with the earliest expiry beyond the limit.
local function drop_expired_families(auth, at, most)
  local kept = {}
  local fields = redis.call('HGETALL', auth)
  for i = 1, #fields, 2 do
    local expires = string.sub(fields[i], 1, 7) == 'family:' and tonumber(string.match(fields[i + 1], '^%x+|(%d+)'))
    if expires and expires <= at then
      redis.call('HDEL', auth, fields[i])
    elseif expires then
      kept[#kept + 1] = {fields[i], expires}
    end
  end
  table.sort(kept, function(a, b) return a[2] < b[2] end)
  for i = 1, #kept - most do end_family(auth, kept[i][1], at) end
end

local function drop_families(auth)
  for _, field in ipairs(redis.call('HKEYS', auth)) do
    if string.sub(field, 1, 7) == 'family:' then redis.call('HDEL', auth, field) end
  end
end

-- register: create an account, and its first session unless `family` is ''.
-- KEYS user, auth, leaving, renaming
-- ARGV name, now, password_hash ('' for none: another provider signs the user in), family, token, id of the idempotent request ('' for none), field, value, …
-- Reply the profile
command('register', function(keys, args)
  local user, auth = unpack(keys)
  local name, at = args[1], now(args[2])
  if redis.call('EXISTS', unpack(keys)) > 0 then fail('username_taken', 'This username is taken. Choose another one.') end
  redis.call('HSET', user, 'username', name, 'role', 'user', 'postCount', 0, 'followerCount', 0, 'followingCount', 0,
    'created_at', text(at), unpack(args, 7))
  if args[3] ~= '' then redis.call('HSET', auth, 'password_hash', args[3]) end
  if args[4] ~= '' then redis.call('HSET', auth, args[4], args[5]) end
  if args[6] ~= '' then redis.call('HSET', auth, 'registered', args[6]) end
  emit('user.registered', name, {username = name})
  project('registries', name)
  return redis.call('HGETALL', user)
end)

-- A suspension is stored with the credentials: services that follow the document would show it in the profile, where
-- earlier releases stored it.
local function is_suspended(user, auth)
  return redis.call('HGET', auth, 'suspended_at') or redis.call('HGET', user, 'suspended_at')
end

-- actor: read what decides who a user is.   KEYS user, auth   Reply {role, suspended_at, username, created_at}
query('actor', function(keys)
  local role, name, created = unpack(redis.call('HMGET', keys[1], 'role', 'username', 'created_at'))
  return {role, is_suspended(keys[1], keys[2]), name, created}
end)

-- sign_in: start a family of refresh tokens after the password was checked.
-- KEYS user, auth   ARGV now, the hash that was checked ('' if none was), a new hash ('' to keep it), family, token, max families
-- Reply the profile, or nothing if the password was changed meanwhile
command('sign_in', function(keys, args)
  local user, auth = keys[1], keys[2]
  local at, compared, renewed, family, token, most = now(args[1]), args[2], args[3], args[4], args[5], tonumber(args[6])
  if compared ~= '' and redis.call('HGET', auth, 'password_hash') ~= compared then return nil end
  if not exists(user) then return nil end
  if is_suspended(user, auth) then fail('suspended', 'This account is suspended.') end
  drop_expired_families(auth, at, most - 1)
  redis.call('HSET', auth, family, token)
  if renewed ~= '' then redis.call('HSET', auth, 'password_hash', renewed) end
  return redis.call('HGETALL', user)
end)

-- refresh: exchange a refresh token for the next of its family. A token that is used twice was copied: the family ends.
-- KEYS user, auth   ARGV now, family, sha256 of the token, next token with its expiry, when and from where it is used
-- Reply {when the user signed in, the profile}; 'reused' if the token was used before; nothing if there is no such family
command('refresh', function(keys, args)
  local user, auth, at, family = keys[1], keys[2], now(args[1]), args[2]
  local known = redis.call('HGET', auth, family)
  if not known then return nil end
  local hash, expires, created = string.match(known, '^(%x+)|(%d+)|?(%d*)')
  if not hash or tonumber(expires) <= at or not exists(user) then
    redis.call('HDEL', auth, family)
    return nil
  end
  if hash ~= args[3] then
    end_family(auth, family, at)
    return 'reused'
  end
  if is_suspended(user, auth) then fail('suspended', 'This account is suspended.') end
  created = created ~= '' and created or '0' -- earlier releases did not store it
  redis.call('HSET', auth, family, args[4] .. '|' .. created .. '|' .. args[5])
  return {created, redis.call('HGETALL', user)}
end)

-- end_session: end one session with its access tokens.
-- KEYS auth   ARGV family, sha256 of its refresh token ('' if its user ends it by its id), now   Reply whether there was one
command('end_session', function(keys, args)
  local auth, family, hash = keys[1], args[1], args[2]
  local known = redis.call('HGET', auth, family)
  if not known or (hash ~= '' and string.match(known, '^%x+') ~= hash) then return 0 end
  return end_family(auth, family, args[3]) and 1 or 0
end)

-- sign_out: end all sessions with every access token of the user.   KEYS auth   ARGV name, now
command('sign_out', function(keys, args)
  drop_families(keys[1])
  project('token_revocation', args[1], args[2])
end)

-- change_password: set a new password, and end every session and access token.
-- KEYS user, auth   ARGV old hash ('' for an operator), new hash, new family ('' for none), token, name, now
-- Reply the profile, or nothing if the old hash was replaced meanwhile
command('change_password', function(keys, args)
  local user, auth = keys[1], keys[2]
  if not exists(user) then fail('no_profile', 'No user has this name.') end
  if args[1] ~= '' and redis.call('HGET', auth, 'password_hash') ~= args[1] then return nil end
  drop_families(auth)
  redis.call('HSET', auth, 'password_hash', args[2])
  if args[3] ~= '' then redis.call('HSET', auth, args[3], args[4]) end
  project('token_revocation', args[5], args[6])
  return redis.call('HGETALL', user)
end)

-- Sets fields of a profile (false removes one), and queues the update of post copies; `no_copies` if there are none yet.
-- Returns whether it changed.
local function change_profile(user, name, changes, no_copies)
  local restyle, changed = false, false
  for field, value in pairs(changes) do
    local before = redis.call('HGET', user, field)
    if value and before ~= value then
      redis.call('HSET', user, field, value)
    elseif not value and before then
      redis.call('HDEL', user, field)
    end
    local differs = (value or false) ~= before
    changed = changed or differs
    restyle = restyle or (differs and IS_COPIED_FIELD[field] or false)
  end
  if restyle and not no_copies then
    redis.call('SET', key.user_version(name), next_number(profile_version(name)))
    redis.call('HDEL', user, 'version')
    project('restyle', name)
  end
  return changed
end

-- change_profile: set and remove profile fields.
-- KEYS user   ARGV name, number of fields set, field, value, …, then fields to remove   Reply the profile
command('change_profile', function(keys, args)
  local user, name, sets = keys[1], args[1], tonumber(args[2])
  if not exists(user) then fail('no_profile', 'No user has this name.') end
  local changes = {}
  for i = 1, sets do changes[args[1 + 2 * i]] = args[2 + 2 * i] end
  for i = 3 + 2 * sets, #args do changes[args[i]] = false end
  if change_profile(user, name, changes) then emit('user.updated', name, {username = name}) end
  return redis.call('HGETALL', user)
end)

-- announce_profile: emit the event of a profile that was written through the proxy.   KEYS user   ARGV name
command('announce_profile', function(keys, args)
  if exists(keys[1]) then emit('user.updated', args[1], {username = args[1]}) end
end)

-- sync_user: create or update a profile from another system.
-- KEYS user, auth, leaving, renaming
-- ARGV name, created ('' if unknown), now, role ('' if unknown), password hash ('' for none), number of fields set,
-- field, value, …, then fields to remove   Reply 'created', 'updated' or 'unchanged'
command('sync_user', function(keys, args)
  local user, auth, leaving, renaming = unpack(keys)
  local name, created, at, role, hash, sets = args[1], args[2], args[3], args[4], args[5], tonumber(args[6])
  if exists(leaving) then fail('username_taken', 'The account with this name is being deleted. Try again later.') end
  if exists(renaming) then fail('username_taken', 'The account with this name is being renamed. Try again later.') end
  local status = 'unchanged'
  if not exists(user) then
    redis.call('HSET', user, 'username', name, 'role', 'user', 'postCount', 0, 'followerCount', 0, 'followingCount', 0,
      'created_at', created ~= '' and created or at)
    status = 'created'
  end
  local changes = {}
  for i = 1, sets do changes[args[5 + 2 * i]] = args[6 + 2 * i] end
  for i = 7 + 2 * sets, #args do changes[args[i]] = false end
  if created ~= '' then changes.created_at = created end
  local no_copies = status == 'created' and not exists(key.user_posts(name))
  local changed = change_profile(user, name, changes, no_copies)
  local role_changed = role ~= '' and change_profile(user, name, {role = role}, no_copies)
  if status == 'created' then
    emit('user.registered', name, {username = name}, 'import')
  elseif changed then
    emit('user.updated', name, {username = name}, 'import')
  end
  if role_changed and status ~= 'created' then
    emit('user.role_changed', name, {username = name, role = role}, 'import')
    project('token_revocation', name, at)
  end
  changed = changed or role_changed
  -- A login may have replaced a synced hash by a stronger one: only another hash is new.
  if hash ~= '' and redis.call('HGET', auth, 'synced_hash') ~= hash then
    drop_families(auth)
    redis.call('HSET', auth, 'password_hash', hash, 'synced_hash', hash)
    changed = true
  end
  if changed or status == 'created' then project('registries', name) end
  return status == 'unchanged' and changed and 'updated' or status
end)

-- change_role: set a role, and end the access tokens that carry the old one.
-- KEYS user   ARGV name, role, now, 1 if the user changes the own role   Reply {changed, the profile}
command('change_role', function(keys, args)
  local user, name = keys[1], args[1]
  if not exists(user) then fail('no_profile', 'No user has this name.') end
  -- Checked again in this step: another admin may have changed the role since the service checked it.
  if args[4] == '1' and role_of(user) ~= 'admin' then fail('forbidden', 'This needs the role admin; yours was changed.') end
  local changed = change_profile(user, name, {role = args[2]})
  if changed then
    emit('user.role_changed', name, {username = name, role = args[2]})
    project('registries', name)
    project('token_revocation', name, args[3])
  end
  return {changed and 1 or 0, redis.call('HGETALL', user)}
end)

-- suspend: suspend an account and revoke its tokens, or end a suspension.
-- KEYS user, auth   ARGV name, admin ('' ends it), now, origin (none by default)
-- Reply {the profile, time of the suspension or ''}
command('suspend', function(keys, args)
  local user, auth, name, by, at = keys[1], keys[2], args[1], args[2], text(now(args[3]))
  if not exists(user) then fail('no_profile', 'No user has this name.') end
  if by == '' then
    if is_suspended(user, auth) then emit('user.unsuspended', name, {username = name}) end
    redis.call('HDEL', auth, 'suspended_at', 'suspended_by')
  elseif not is_suspended(user, auth) then
    emit('user.suspended', name, {username = name}, args[4])
    redis.call('HSET', auth, 'suspended_at', at, 'suspended_by', by)
    drop_families(auth)
    project('revocation', name, at)
  end
  local since = is_suspended(user, auth) or ''
  if by == '' then
    redis.call('HDEL', user, 'suspended_at', 'suspended_by')
    since = ''
  end
  -- Processes cache who a user is until the profile changes.
  redis.call('HSET', user, 'username', name)
  return {redis.call('HGETALL', user), since}
end)

-- Deletes profile and credentials and marks the account; the rest is deleted in batches.
-- While the mark exists the audit reports nothing of this user, so all that the batches do not reach goes here.
local function start_deletion(name, at)
  if redis.call('SET', key.user_leaving(name), at, 'NX') then emit('user.deleted', name, {username = name}) end
  redis.call('DEL', key.user(name), key.auth_user(name), key.tmp_home(name), key.tmp_home_state(name), key.user_version(name))
  project('registries', name)
  project('restyle', name)
  project('revocation', name, at)
  project('user_leaving', name)
end

-- begin_deletion: start the deletion of an account.
-- KEYS user, leaving, posts, renaming
-- ARGV name, now, 1 for a user without a profile   Reply the number of posts to delete
command('begin_deletion', function(keys, args)
  local user, leaving, posts, renaming = unpack(keys)
  local name = args[1]
  if exists(renaming) then fail('conflict', 'This account is being renamed. Try again later.', {username = name}) end
  if args[3] ~= '1' and not exists(user) and not exists(leaving) then
    fail('no_profile', 'No user has this name.')
  end
  start_deletion(name, text(now(args[2])))
  return redis.call('ZCARD', posts)
end)

-- drop_deleted_entries: remove entries from a list of an account that is still being deleted.
-- KEYS leaving, list   ARGV time of the mark, member, …
command('drop_deleted_entries', function(keys, args)
  if redis.call('GET', keys[1]) ~= args[1] or not exists(keys[2]) then return end
  redis.call(redis.call('TYPE', keys[2]).ok == 'set' and 'SREM' or 'ZREM', keys[2], unpack(args, 2))
end)

-- end_deletion: free the username if nothing is left of the account.
-- KEYS leaving, home, home state, then every other key of the user   ARGV name, time of the mark
-- Reply 1, also if it was free before; 0 if something is left
command('end_deletion', function(keys, args)
  if redis.call('GET', keys[1]) ~= args[2] then return 1 end
  for i = 4, #keys do
    if exists(keys[i]) then return 0 end
  end
  redis.call('DEL', keys[1], keys[2], keys[3])
  project('user_leaving', args[1])
  return 1
end)
