-- Relations: follows, blocks and mutes. The owner is the user who follows, blocks or mutes.
--
-- A command that needs another owner's data (does that user exist?) gets the other's key after its own on one server.
-- On a cluster that key is on another node: the service reads it before the call. If the other user is deleted in
-- between, the update of the other side finds out and withdraws the relation.

-- Whether one of two sorted sets has a member. Most users have no block, so neither set exists.
local function is_in_either(one, other, member)
  if redis.call('EXISTS', one, other) == 0 then return false end
  return redis.call('ZSCORE', one, member) or redis.call('ZSCORE', other, member)
end

-- A block hides each user from the other: a hidden user is reported as missing.
local function require_visible_user(is_missing, blocked, blocked_by, name)
  if is_missing or is_in_either(blocked, blocked_by, name) then
    fail('not_found', 'No user has this name.', {username = name})
  end
end

-- Another service adds members to a documented set and does not know Plaza's index beside it. This completes the index:
-- new members get the time `at`, members that were removed leave. Returns the members that changed. Comparing the sizes
-- is cheap; it misses as many additions as removals, which the audit finds, and so are sets above the limit.
local function complete_index(set, index, at)
  local size = redis.call('SCARD', set)
  if size == redis.call('ZCARD', index) or size > MAX_COMPLETED then return {} end
  local changed, members = {}, {}
  for _, member in ipairs(redis.call('SMEMBERS', set)) do
    members[member] = true
    if redis.call('ZADD', index, 'NX', at, member) == 1 then changed[#changed + 1] = member end
  end
  for _, member in ipairs(redis.call('ZRANGE', index, 0, -1)) do
    if not members[member] then
      redis.call('ZREM', index, member)
      changed[#changed + 1] = member
    end
  end
  return changed
end

-- The follower's `:following` is source data; this updates the followed user's side from it.
projection('follower', function(me, target)
  local since = ''
  if redis.call('SISMEMBER', key.user_following(me), target) == 1 then
    since = redis.call('ZSCORE', key.user_following_recent(me), target) or '0'
  end
  return perform('update_follower', {key.user(target), key.user_followers(target), key.user_followers_recent(target)},
    {target, me, since})
end)

projection('withdraw_follow', function(target, me)
  if exists(key.user(target)) then return nil end
  return perform('unfollow', {key.user(me), key.user_following(me), key.user_following_recent(me)}, {me, target})
end)

-- Sets the followed user's side of a follow; `since` is its time, '' if there is none. `count` is the user's `followerCount`.
local function set_follower(user, followers, recent, name, follower, since, count)
  local difference = 0
  if since == '' then
    difference = -redis.call('SREM', followers, follower)
    redis.call('ZREM', recent, follower)
  elseif count or exists(user) then
    difference = redis.call('SADD', followers, follower)
    redis.call('ZADD', recent, since, follower)
  else
    project('withdraw_follow', name, follower)
  end
  if difference == 0 then return end
  local size = redis.call('SCARD', followers)
  change_count(user, 'followerCount', size - difference, size, count)
end

-- Updates the followed user's side of a follow that has changed; `since` is its time, '' if it ended. On one server it does at
-- once what the projection would do; `count` is the user's `followerCount`, if the caller has read it.
local function update_follower_of(me, target, since, count)
  if CLUSTERED then return project('follower', me, target) end
  local user = key.user(target)
  if count == nil then count = redis.call('HGET', user, 'followerCount') end
  set_follower(user, key.user_followers(target), key.user_followers_recent(target), target, me, since, count)
end

local function emit_follow(me, target, origin)
  emit('user.followed', me, {follower = me, followed = target}, origin)
end

local function emit_unfollow(me, target, origin)
  emit('user.unfollowed', me, {follower = me, followed = target}, origin)
end

local function end_follow(user, following, recent, me, target, origin)
  if redis.call('SREM', following, target) == 0 then return 0 end
  emit_unfollow(me, target, origin)
  redis.call('ZREM', recent, target)
  local size = redis.call('SCARD', following)
  change_count(user, 'followingCount', size + 1, size)
  -- Other services read the home feed directly and would still see the posts. The next read builds it.
  redis.call('DEL', key.tmp_home(me), key.tmp_home_state(me))
  update_follower_of(me, target, '')
  return 1
end

-- follow   KEYS user, following, recent, blocked, blocked_by, home state, target's user (one server)
-- ARGV me, target, time; then 'sync', 'sync_with_time' (a record with its time) or 'rename' if it comes from there
-- Reply 1; 0 if nothing changed, 2 if only the time did
command('follow', function(keys, args)
  local user, following, recent, blocked, blocked_by, state, other = unpack(keys)
  local me, target, at = args[1], args[2], text(now(args[3]))
  local count = redis.call('HGET', user, 'followingCount')
  if not count then require_profile(user) end
  local followers = other and redis.call('HGET', other, 'followerCount')
  require_visible_user(other and not followers and not exists(other), blocked, blocked_by, target)
  if redis.call('SADD', following, target) == 0 then
    local completed = redis.call('ZADD', recent, 'NX', at, target) == 1 -- another service added the follow
    if completed then
      redis.call('HDEL', state, 'follows')
      redis.call('HSET', user, 'followingCount', redis.call('SCARD', following))
      emit_follow(me, target, origin_of(args[4]))
    elseif not update_time(recent, target, at, args[4]) then
      return 0
    end
    project('follower', me, target)
    return completed and 0 or 2
  end
  redis.call('ZADD', recent, at, target)
  redis.call('HDEL', state, 'follows') -- the home feed was built without this follow
  local size = redis.call('SCARD', following)
  change_count(user, 'followingCount', size - 1, size, count)
  emit_follow(me, target, origin_of(args[4]))
  update_follower_of(me, target, at, followers)
  return 1
end)

-- The commands below complete Plaza's indexes for a reader. They change no documented key: the other service may be
-- about to write the other side of the follow and the counters.

-- The time of a follow in the index of the followed user.
projection('follower_index', function(me, target)
  local since = redis.call('SISMEMBER', key.user_following(me), target) == 1
    and redis.call('ZSCORE', key.user_following_recent(me), target)
  return perform('index_follower', {key.user_followers(target), key.user_followers_recent(target)}, {me, since or ''})
end)

-- index_follower: update the order of followers.   KEYS followers, recent   ARGV follower, time ('' if not following)
command('index_follower', function(keys, args)
  if redis.call('SISMEMBER', keys[1], args[1]) == 0 then
    redis.call('ZREM', keys[2], args[1])
  elseif args[2] ~= '' then
    redis.call('ZADD', keys[2], args[2], args[1])
  end
end)

local function complete_following(following, recent, state, me, at)
  local changed = complete_index(following, recent, at)
  if #changed == 0 then return end
  redis.call('HDEL', state, 'follows')
  for _, target in ipairs(changed) do
    local announce = redis.call('SISMEMBER', following, target) == 1 and emit_follow or emit_unfollow
    announce(me, target)
    project('follower_index', me, target)
  end
end

-- complete_following: index the follows that another service wrote.
-- KEYS following, recent, home state   ARGV name, now
command('complete_following', function(keys, args)
  complete_following(keys[1], keys[2], keys[3], args[1], text(now(args[2])))
end)

projection('complete_follower', function(target, me, at)
  return perform('complete_follow', {key.user_following(me), key.user_following_recent(me), key.tmp_home_state(me)},
    {me, target, at})
end, 2)

-- complete_followers: index the followers that another service wrote, from each follower's side.
-- KEYS followers, recent   ARGV name, now
command('complete_followers', function(keys, args)
  local followers, recent, name, at = keys[1], keys[2], args[1], text(now(args[2]))
  local size = redis.call('SCARD', followers)
  if size == redis.call('ZCARD', recent) or size > MAX_COMPLETED then return end
  local members = {}
  for _, follower in ipairs(redis.call('SMEMBERS', followers)) do
    members[follower] = true
    if not redis.call('ZSCORE', recent, follower) then project('complete_follower', name, follower, at) end
  end
  for _, follower in ipairs(redis.call('ZRANGE', recent, 0, -1)) do
    if not members[follower] then project('complete_follower', name, follower, at) end
  end
end)

-- complete_follow: index one follow. A member of `:followers` whose `:following` does not say so is left to the audit.
-- KEYS following, recent, home state   ARGV name, target, now
command('complete_follow', function(keys, args)
  local following, recent, state, me, target, at = keys[1], keys[2], keys[3], args[1], args[2], args[3]
  if redis.call('SISMEMBER', following, target) == 1 then
    if redis.call('ZADD', recent, 'NX', at, target) == 1 then
      redis.call('HDEL', state, 'follows')
      emit_follow(me, target)
    end
  elseif redis.call('ZREM', recent, target) == 1 then
    redis.call('HDEL', state, 'follows')
    emit_unfollow(me, target)
  end
  project('follower_index', me, target)
end)

-- unfollow   KEYS user, following, recent   ARGV me, target, now, 'rename' if it comes from there
-- Reply 1, or 0 if nothing changed
command('unfollow', function(keys, args)
  return end_follow(keys[1], keys[2], keys[3], args[1], args[2], origin_of(args[4]))
end)

-- update_follower: the followed user's side of a follow.
-- KEYS user, followers, recent   ARGV name, follower, time ('' if not following)
command('update_follower', function(keys, args)
  local user = keys[1]
  set_follower(user, keys[2], keys[3], args[1], args[2], args[3], redis.call('HGET', user, 'followerCount'))
end)

projection('blocking', function(me, target)
  local since = redis.call('ZSCORE', key.user_blocked(me), target) or ''
  local theirs = {key.user(target), key.user_blocked_by(target), key.user_following(target),
    key.user_following_recent(target)}
  return perform('update_blocked_by', theirs, {target, me, since})
end)

projection('withdraw_block', function(target, me)
  if exists(key.user(target)) then return nil end
  return perform('unblock', {key.user_blocked(me)}, {me, target})
end)

-- block: hide each user from the other and end follows both ways.
-- KEYS blocked, user, following, recent, target's user (one server)   ARGV me, target, now   Reply 1 or 0
command('block', function(keys, args)
  local blocked, user, following, recent, other = unpack(keys)
  local me, target, at = args[1], args[2], text(now(args[3]))
  if other and not exists(other) then fail('not_found', 'No user has this name.', {username = target}) end
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

-- update_blocked_by: the blocked user's side of a block.
-- KEYS user, blocked_by, following, recent   ARGV name, blocker, time ('' if not blocked)
command('update_blocked_by', function(keys, args)
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
  return perform('update_muted_by', {key.user(target), key.user_muted_by(target)}, {target, me, since})
end)

projection('withdraw_mute', function(target, me)
  if exists(key.user(target)) then return nil end
  return perform('unmute', {key.user_muted(me)}, {me, target})
end)

-- mute   KEYS muted, blocked, blocked_by, target's user (one server)   ARGV me, target, now   Reply 1 or 0
command('mute', function(keys, args)
  local muted, blocked, blocked_by, other = unpack(keys)
  require_visible_user(other and not exists(other), blocked, blocked_by, args[2])
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

-- update_muted_by: the muted user's side of a mute.   KEYS user, muted_by   ARGV name, muter, time ('' if not muted)
command('update_muted_by', function(keys, args)
  if args[3] == '' then
    redis.call('ZREM', keys[2], args[2])
  elseif exists(keys[1]) then
    redis.call('ZADD', keys[2], args[3], args[2])
  else
    project('withdraw_mute', args[1], args[2])
  end
end)
