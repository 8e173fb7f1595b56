-- Users: accounts, profiles, and how people stand to each other. The owner is a username.
--
-- A verb that needs to know something of another owner (does that person exist?) is given the other's key after its own
-- on one server, and reads it there. On a cluster that key is elsewhere: the service has looked before the call, and
-- if the other went away in between, the other's side finds out and the fact is withdrawn.

local function exists(k)
  return redis.call('EXISTS', k) == 1
end

local function require_profile(user)
  if not exists(user) then fail('no_profile', 'You have no profile here.') end
end

-- Blocking hides both ways; to the one who asks, the other is not there.
local function require_person(other, blocked, blocked_by, name)
  local missing = other and not exists(other)
  if missing or redis.call('ZSCORE', blocked, name) or redis.call('ZSCORE', blocked_by, name) then
    fail('not_found', 'There is nobody of that name.', {username = name})
  end
end

-- A counter is a cardinality, never counted on its own. Without the hash its owner is gone, and nothing is written.
local function set_count(hash, field, size)
  if exists(hash) then redis.call('HSET', hash, field, size) end
end

-- Whether another system knows better than we do since when something is so; if so, that is what counts.
local function redated(recent, member, at, told)
  if told ~= 'told' or tonumber(redis.call('ZSCORE', recent, member)) == tonumber(at) then return false end
  redis.call('ZADD', recent, at, member)
  return true
end

projection('leader', function(name)
  local board = key.models_top_engagement()
  if redis.call('HGET', key.user(name), 'role') ~= 'model' then return {'ZREM', board, name} end
  return {'ZADD', board, redis.call('HGET', key.user_points(name), 'total') or 0, name}
end)

projection('registries', function(name)
  local role, created = unpack(redis.call('HMGET', key.user(name), 'role', 'created_at'))
  local function entry(registry, wanted)
    if role == wanted then return {'ZADD', registry, created, name} end
    return {'ZREM', registry, name}
  end
  return {entry(key.users_regular(), 'user'), entry(key.users_models(), 'model'), projections.leader(name)}
end)

-- Posts made from now on copy the new profile; this has the older ones follow.
projection('restyle', function(name)
  local version = redis.call('HGET', key.user(name), 'version')
  if not version or not exists(key.user_posts(name)) then return {'HDEL', key.users_restyle(), name} end
  return {'HSET', key.users_restyle(), name, version .. '|'}
end)

projection('cutoff', function(name, at)
  return {'ZADD', key.token_cutoffs(), 'GT', at, name}
end, 1)

projection('user_leaving', function(name)
  local since = redis.call('GET', key.user_leaving(name))
  if not since then return {'ZREM', key.users_leaving(), name} end
  return {'ZADD', key.users_leaving(), since, name}
end)

-- Drops refresh tokens that have expired, and the oldest beyond the number allowed.
local function tidy_families(auth, at, most)
  local kept = {}
  local fields = redis.call('HGETALL', auth)
  for i = 1, #fields, 2 do
    local expires = string.sub(fields[i], 1, 7) == 'family:' and tonumber(string.match(fields[i + 1], '|(%d+)$'))
    if expires and expires <= at then
      redis.call('HDEL', auth, fields[i])
    elseif expires then
      kept[#kept + 1] = {fields[i], expires}
    end
  end
  table.sort(kept, function(a, b) return a[2] < b[2] end)
  for i = 1, #kept - most do redis.call('HDEL', auth, kept[i][1]) end
end

local function drop_families(auth)
  for _, field in ipairs(redis.call('HKEYS', auth)) do
    if string.sub(field, 1, 7) == 'family:' then redis.call('HDEL', auth, field) end
  end
end

-- register: a new account, signed in at once.
-- KEYS user, auth, leaving, renaming
-- ARGV name, now, password_hash, family, token, what it is known by if it is sent again ('' for nothing), field, value, …
-- Reply the profile
command('register', function(keys, args)
  local user, auth = unpack(keys)
  local name, at = args[1], now(args[2])
  if redis.call('EXISTS', unpack(keys)) > 0 then fail('username_taken', 'That name is taken.') end
  redis.call('HSET', user, 'username', name, 'role', 'user', 'postCount', 0, 'followerCount', 0, 'followingCount', 0,
    'created_at', text(at), 'version', 1, unpack(args, 7))
  redis.call('HSET', auth, 'password_hash', args[3], args[4], args[5])
  if args[6] ~= '' then redis.call('HSET', auth, 'registered', args[6]) end
  project('registries', name)
  return redis.call('HGETALL', user)
end)

-- sign_in: the password was right; hand out a family of refresh tokens.
-- KEYS user, auth   ARGV now, the hash it was compared with, a new hash ('' to keep), family, token, most
-- Reply the profile, or nothing if the password is another one by now
command('sign_in', function(keys, args)
  local user, auth = keys[1], keys[2]
  local at, compared, renewed, family, token, most = now(args[1]), args[2], args[3], args[4], args[5], tonumber(args[6])
  if redis.call('HGET', auth, 'password_hash') ~= compared or not exists(user) then return nil end
  if redis.call('HGET', user, 'suspended_at') then fail('suspended', 'This account is suspended.') end
  tidy_families(auth, at, most - 1)
  redis.call('HSET', auth, family, token)
  if renewed ~= '' then redis.call('HSET', auth, 'password_hash', renewed) end
  return redis.call('HGETALL', user)
end)

-- refresh: exchange a refresh token for the next of its family. One that was exchanged before was copied by somebody:
-- whoever it was, the family ends.
-- KEYS user, auth   ARGV now, family, sha256 of the token shown, next token   Reply the profile, or nothing
command('refresh', function(keys, args)
  local user, auth, at, family = keys[1], keys[2], now(args[1]), args[2]
  local known = redis.call('HGET', auth, family)
  if not known then return nil end
  local hash, expires = string.match(known, '^(%x+)|(%d+)$')
  if hash ~= args[3] or tonumber(expires) <= at or not exists(user) then
    redis.call('HDEL', auth, family)
    return nil
  end
  if redis.call('HGET', user, 'suspended_at') then fail('suspended', 'This account is suspended.') end
  redis.call('HSET', auth, family, args[4])
  return redis.call('HGETALL', user)
end)

-- sign_out: end a family of refresh tokens, or all.   KEYS auth   ARGV family ('' for all)
command('sign_out', function(keys, args)
  if args[1] == '' then drop_families(keys[1]) else redis.call('HDEL', keys[1], args[1]) end
  return 1
end)

-- change_password: every other session ends.
-- KEYS user, auth   ARGV the old hash ('' for an operator), the new one, family ('' for none), token
-- Reply the profile, or nothing if the old one is another by now
command('change_password', function(keys, args)
  local user, auth = keys[1], keys[2]
  if not exists(user) then fail('no_profile', 'There is nobody of that name.') end
  if args[1] ~= '' and redis.call('HGET', auth, 'password_hash') ~= args[1] then return nil end
  drop_families(auth)
  redis.call('HSET', auth, 'password_hash', args[2])
  if args[3] ~= '' then redis.call('HSET', auth, args[3], args[4]) end
  return redis.call('HGETALL', user)
end)

local COPIED = {avatar = true, display_name = true, role = true}

-- Sets fields of a profile ('' stays '', nil takes one away) and notes whether posts have to follow.
local function change_profile(user, name, changes)
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
    restyle = restyle or (differs and COPIED[field] or false)
  end
  if restyle then
    redis.call('HINCRBY', user, 'version', 1)
    project('restyle', name)
  end
  return changed
end

-- change_profile: what people say of themselves.
-- KEYS user   ARGV name, number of fields set, field, value, …, then fields taken away   Reply the profile
command('change_profile', function(keys, args)
  local user, name, sets = keys[1], args[1], tonumber(args[2])
  if not exists(user) then fail('no_profile', 'There is nobody of that name.') end
  local changes = {}
  for i = 1, sets do changes[args[1 + 2 * i]] = args[2 + 2 * i] end
  for i = 3 + 2 * sets, #args do changes[args[i]] = false end
  change_profile(user, name, changes)
  return redis.call('HGETALL', user)
end)

-- sync_user: a profile of another system, as it is there now.
-- KEYS user, auth, leaving, renaming
-- ARGV name, created ('' if not known), now, role ('' if not known), password hash ('' for none), number of fields set,
-- field, value, …, then fields taken away   Reply 'created', 'updated' or 'unchanged'
command('sync_user', function(keys, args)
  local user, auth, leaving, renaming = unpack(keys)
  local name, created, at, role, hash, sets = args[1], args[2], args[3], args[4], args[5], tonumber(args[6])
  if exists(leaving) then fail('username_taken', 'The account of that name is being deleted.') end
  if exists(renaming) then fail('username_taken', 'The account of that name is being renamed.') end
  local status = 'unchanged'
  if not exists(user) then
    redis.call('HSET', user, 'username', name, 'role', 'user', 'postCount', 0, 'followerCount', 0, 'followingCount', 0,
      'created_at', created ~= '' and created or at, 'version', 0)
    status = 'created'
  end
  local changes = {}
  for i = 1, sets do changes[args[5 + 2 * i]] = args[6 + 2 * i] end
  for i = 7 + 2 * sets, #args do changes[args[i]] = false end
  if role ~= '' then changes.role = role end
  if created ~= '' then changes.created_at = created end
  local changed = change_profile(user, name, changes)
  -- A hash that was taken over once may have been replaced since, by a login: only another one counts.
  if hash ~= '' and redis.call('HGET', auth, 'synced_hash') ~= hash then
    drop_families(auth)
    redis.call('HSET', auth, 'password_hash', hash, 'synced_hash', hash)
    changed = true
  end
  if changed or status == 'created' then project('registries', name) end
  return status == 'unchanged' and changed and 'updated' or status
end)

-- change_role   KEYS user   ARGV name, role   Reply the profile
command('change_role', function(keys, args)
  local user, name = keys[1], args[1]
  if not exists(user) then fail('no_profile', 'There is nobody of that name.') end
  if change_profile(user, name, {role = args[2]}) then project('registries', name) end
  return redis.call('HGETALL', user)
end)

-- suspend: nobody gets in by this account until it is lifted; tokens from before are void.
-- KEYS user, auth   ARGV name, by whom ('' lifts it), now   Reply the profile
command('suspend', function(keys, args)
  local user, auth, name, by, at = keys[1], keys[2], args[1], args[2], text(now(args[3]))
  if not exists(user) then fail('no_profile', 'There is nobody of that name.') end
  if by == '' then
    redis.call('HDEL', user, 'suspended_at', 'suspended_by')
  elseif not redis.call('HGET', user, 'suspended_at') then
    redis.call('HSET', user, 'suspended_at', at, 'suspended_by', by)
    drop_families(auth)
    project('cutoff', name, at)
  end
  return redis.call('HGETALL', user)
end)

-- The follower's `:following` is the fact; the followed person's side is told what it says now.
projection('follower', function(me, target)
  local since = redis.call('ZSCORE', key.user_following_recent(me), target) or ''
  return perform('note_follower', {key.user(target), key.user_followers(target), key.user_followers_recent(target)},
    {target, me, since})
end)

projection('withdraw_follow', function(target, me)
  if exists(key.user(target)) then return nil end
  return perform('unfollow', {key.user(me), key.user_following(me), key.user_following_recent(me)}, {me, target})
end)

local function end_follow(user, following, recent, me, target)
  if redis.call('SREM', following, target) == 0 then return 0 end
  redis.call('ZREM', recent, target)
  set_count(user, 'followingCount', redis.call('SCARD', following))
  project('follower', me, target)
  return 1
end

-- follow   KEYS user, following, recent, blocked, blocked_by, home state, the other's user (one server)
-- ARGV me, target, since when, 'told' if another system says when   Reply 1; 0 if it was so already, 2 if since when was not
command('follow', function(keys, args)
  local user, following, recent, blocked, blocked_by, state, other = unpack(keys)
  local me, target, at = args[1], args[2], text(now(args[3]))
  require_profile(user)
  require_person(other, blocked, blocked_by, target)
  if redis.call('SADD', following, target) == 0 then
    if not redated(recent, target, at, args[4]) then return 0 end
    project('follower', me, target)
    return 2
  end
  redis.call('ZADD', recent, at, target)
  redis.call('HDEL', state, 'follows') -- the home feed was built from others, however old this follow is
  redis.call('HSET', user, 'followingCount', redis.call('SCARD', following))
  project('follower', me, target)
  return 1
end)

-- unfollow   KEYS user, following, recent   ARGV me, target   Reply 1, or 0 if it was so already
command('unfollow', function(keys, args)
  return end_follow(keys[1], keys[2], keys[3], args[1], args[2])
end)

-- note_follower: the followed side of a follow.   KEYS user, followers, recent   ARGV name, follower, since ('' if not)
command('note_follower', function(keys, args)
  local user, followers, recent, name, follower, since = keys[1], keys[2], keys[3], args[1], args[2], args[3]
  if since == '' then
    redis.call('SREM', followers, follower)
    redis.call('ZREM', recent, follower)
  elseif exists(user) then
    redis.call('SADD', followers, follower)
    redis.call('ZADD', recent, since, follower)
  else
    project('withdraw_follow', name, follower)
  end
  set_count(user, 'followerCount', redis.call('SCARD', followers))
end)

projection('blocking', function(me, target)
  local since = redis.call('ZSCORE', key.user_blocked(me), target) or ''
  local theirs = {key.user(target), key.user_blocked_by(target), key.user_following(target),
    key.user_following_recent(target)}
  return perform('note_block', theirs, {target, me, since})
end)

projection('withdraw_block', function(target, me)
  if exists(key.user(target)) then return nil end
  return perform('unblock', {key.user_blocked(me)}, {me, target})
end)

-- block: hides each from the other, and ends follows both ways.
-- KEYS blocked, user, following, recent, the other's user (one server)   ARGV me, target, now   Reply 1 or 0
command('block', function(keys, args)
  local blocked, user, following, recent, other = unpack(keys)
  local me, target, at = args[1], args[2], text(now(args[3]))
  if other and not exists(other) then fail('not_found', 'There is nobody of that name.', {username = target}) end
  if redis.call('ZADD', blocked, 'NX', at, target) == 0 then return 0 end
  end_follow(user, following, recent, me, target)
  project('blocking', me, target)
  return 1
end)

-- unblock   KEYS blocked   ARGV me, target   Reply 1 or 0
command('unblock', function(keys, args)
  if redis.call('ZREM', keys[1], args[2]) == 0 then return 0 end
  project('blocking', args[1], args[2])
  return 1
end)

-- note_block: the blocked side.   KEYS user, blocked_by, following, recent   ARGV name, blocker, since ('' if not)
command('note_block', function(keys, args)
  local user, blocked_by, following, recent = unpack(keys)
  local name, blocker, since = unpack(args)
  if since == '' then
    redis.call('ZREM', blocked_by, blocker)
  elseif exists(user) then
    redis.call('ZADD', blocked_by, since, blocker)
    end_follow(user, following, recent, name, blocker)
  else
    project('withdraw_block', name, blocker)
  end
end)

projection('muting', function(me, target)
  local since = redis.call('ZSCORE', key.user_muted(me), target) or ''
  return perform('note_mute', {key.user(target), key.user_muted_by(target)}, {target, me, since})
end)

projection('withdraw_mute', function(target, me)
  if exists(key.user(target)) then return nil end
  return perform('unmute', {key.user_muted(me)}, {me, target})
end)

-- mute   KEYS muted, blocked, blocked_by, the other's user (one server)   ARGV me, target, now   Reply 1 or 0
command('mute', function(keys, args)
  local muted, blocked, blocked_by, other = unpack(keys)
  require_person(other, blocked, blocked_by, args[2])
  if redis.call('ZADD', muted, 'NX', text(now(args[3])), args[2]) == 0 then return 0 end
  project('muting', args[1], args[2])
  return 1
end)

-- unmute   KEYS muted   ARGV me, target   Reply 1 or 0
command('unmute', function(keys, args)
  if redis.call('ZREM', keys[1], args[2]) == 0 then return 0 end
  project('muting', args[1], args[2])
  return 1
end)

-- note_mute   KEYS user, muted_by   ARGV name, who mutes, since ('' if not)
command('note_mute', function(keys, args)
  if args[3] == '' then
    redis.call('ZREM', keys[2], args[2])
  elseif exists(keys[1]) then
    redis.call('ZADD', keys[2], args[3], args[2])
  else
    project('withdraw_mute', args[1], args[2])
  end
end)

-- leave: an account goes. Its profile and credentials are gone at once; the rest follows in batches.
-- KEYS user, auth, leaving, home, home state, posts, renaming
-- ARGV name, now, 1 if there is something of someone without a profile   Reply the number of posts to delete
command('leave', function(keys, args)
  local user, auth, leaving, home, state, posts, renaming = unpack(keys)
  local name, at = args[1], text(now(args[2]))
  if exists(renaming) then fail('conflict', 'This account is being renamed.', {username = name}) end
  if args[3] ~= '1' and not exists(user) and not exists(leaving) then
    fail('no_profile', 'There is nobody of that name.')
  end
  redis.call('SET', leaving, at, 'NX')
  redis.call('DEL', user, auth, home, state)
  project('registries', name)
  project('restyle', name)
  project('cutoff', name, at)
  project('user_leaving', name)
  return redis.call('ZCARD', posts)
end)

-- drop_left: out of a list of someone who leaves, unless they are gone for good already.
-- KEYS leaving, list   ARGV since when they leave, member, …
command('drop_left', function(keys, args)
  if redis.call('GET', keys[1]) ~= args[1] or not exists(keys[2]) then return end
  redis.call(redis.call('TYPE', keys[2]).ok == 'set' and 'SREM' or 'ZREM', keys[2], unpack(args, 2))
end)

-- left: the name is free, if nothing is left of it.
-- KEYS leaving, home, home state, then every other key of the user   ARGV name, since when they leave
-- Reply 1, also if it was free before, or 0 if something is left
command('left', function(keys, args)
  if redis.call('GET', keys[1]) ~= args[2] then return 1 end
  for i = 4, #keys do
    if exists(keys[i]) then return 0 end
  end
  redis.call('DEL', keys[1], keys[2], keys[3])
  project('user_leaving', args[1])
  return 1
end)
