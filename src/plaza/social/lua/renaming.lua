-- Renaming an account. The owner is a username, a post or a comment.
--
-- `user:<username>:renaming` marks both usernames: `to` at the old one, `from` at the new one. Neither can be registered
-- while it exists. The old profile stays until nothing else is left, so that late writes to the old name succeed and are
-- moved too.

projection('user_renaming', function(name)
  local to = redis.call('HGET', key.user_renaming(name), 'to')
  if to then return {'HSET', key.users_renaming(), name, to} end
  return {'HDEL', key.users_renaming(), name}
end)

-- rename_begin   KEYS user, leaving, renaming   ARGV old, new, now   Reply `begun`, `moving` or `closing`
command('rename_begin', function(keys, args)
  local user, leaving, renaming = unpack(keys)
  local to, from, phase = unpack(redis.call('HMGET', renaming, 'to', 'from', 'phase'))
  if to == args[2] then return phase end
  if to or from then fail('conflict', 'This account is already being renamed.', {username = args[1]}) end
  if exists(leaving) then fail('conflict', 'This account is being deleted. Try again later.', {username = args[1]}) end
  if not exists(user) then fail('no_profile', 'No user has this name.', {username = args[1]}) end
  redis.call('HSET', renaming, 'to', args[2], 'since', text(now(args[3])), 'phase', 'begun')
  project('user_renaming', args[1])
  return 'begun'
end)

-- rename_reserve: reserve the new username.   KEYS user, auth, leaving, renaming   ARGV old
command('rename_reserve', function(keys, args)
  local renaming = keys[4]
  if redis.call('HGET', renaming, 'from') == args[1] then return end
  for _, k in ipairs(keys) do
    if exists(k) then fail('username_taken', 'This username is taken. Choose another one.') end
  end
  redis.call('HSET', renaming, 'from', args[1])
end)

-- rename_cancel: the new username is taken.   KEYS renaming   ARGV old
command('rename_cancel', function(keys, args)
  redis.call('DEL', keys[1])
  project('user_renaming', args[1])
end)

-- rename_revoke: revoke the tokens of the old username.
-- KEYS auth, renaming   ARGV old, now
command('rename_revoke', function(keys, args)
  drop_families(keys[1])
  project('revocation', args[1], args[2])
  redis.call('HSET', keys[2], 'phase', 'moving')
end)

-- Copies the old profile, except the counters. If the new profile was changed meanwhile, its version is higher, and posts
-- have copied it: keep the higher version.
local function copy_profile(user, name, posts, followers, following, fields)
  local changes, version, is_new = {}, profile_version(name), not exists(user)
  for _, field in ipairs(redis.call('HKEYS', user)) do changes[field] = false end
  for i = 1, #fields, 2 do
    if fields[i] == 'version' then
      version = math.max(version, math.floor(finite(fields[i + 1], 0)))
    else
      changes[fields[i]] = fields[i + 1]
      if is_new then redis.call('HSET', user, fields[i], fields[i + 1]) end
    end
  end
  if version > 0 then redis.call('SET', key.user_version(name), text(version)) end
  changes.username, changes.postCount = name, text(redis.call('ZCARD', posts))
  changes.followerCount = text(redis.call('SCARD', followers))
  changes.followingCount = text(redis.call('SCARD', following))
  change_profile(user, name, changes)
  project('registries', name)
end

-- rename_copy_profile: copy the profile to the new username.
-- KEYS user, renaming, posts, followers, following   ARGV new, field, value, …
command('rename_copy_profile', function(keys, args)
  local user, renaming, posts, followers, following = unpack(keys)
  if exists(renaming) then copy_profile(user, args[1], posts, followers, following, {unpack(args, 2)}) end
end)

-- rename_open_account: copy the final profile and the password, so that the user can sign in.
-- KEYS user, renaming, posts, followers, following, auth
-- ARGV new, number of credentials, credential, value, …, then field, value, …
command('rename_open_account', function(keys, args)
  local user, renaming, posts, followers, following, auth = unpack(keys)
  if not exists(renaming) then return end -- an earlier run did this; the user may have changed the profile since
  local credentials = tonumber(args[2])
  for i = 3, 2 + 2 * credentials, 2 do redis.call('HSET', auth, args[i], args[i + 1]) end
  copy_profile(user, args[1], posts, followers, following, {unpack(args, 3 + 2 * credentials)})
  redis.call('DEL', renaming)
  project('restyle', args[1])
end)

-- rename_record: remember a former username. Earlier ones lead to the new username too.
-- KEYS users:renamed   ARGV old, new, then the names that lead to the old one
command('rename_record', function(keys, args)
  local new = args[2]
  redis.call('HSET', keys[1], args[1], new)
  for i = 3, #args do redis.call('HSET', keys[1], args[i], new) end
  redis.call('HDEL', keys[1], new)
end)

-- repair_renamed: forget a former username whose user does not exist.   KEYS users:renamed   ARGV now_ms, old
projection('former_name', function(old, current)
  if exists(key.user(current)) then return nil end
  return perform('forget_name', {key.users_renamed()}, {old, current})
end)
command('repair_renamed', function(keys, args)
  local current = redis.call('HGET', keys[1], args[2])
  if current then project('confirm_name', args[2], current) end
end)
projection('confirm_name', function(old, current)
  return perform('confirm_former_name', {key.user(current)}, {old, current})
end)

-- confirm_former_name: forget a former username if the user it leads to is gone.   KEYS user   ARGV old, current
command('confirm_former_name', function(keys, args)
  if not exists(keys[1]) then project('former_name', args[1], args[2]) end
end)

-- forget_name   KEYS users:renamed   ARGV old, current
command('forget_name', function(keys, args)
  if redis.call('HGET', keys[1], args[1]) == args[2] then redis.call('HDEL', keys[1], args[1]) end
end)

-- rename_close: the last phase; the new account opens next.   KEYS renaming, user, auth   Reply {profile, credentials}
command('rename_close', function(keys)
  redis.call('HSET', keys[1], 'phase', 'closing')
  return {redis.call('HGETALL', keys[2]), redis.call('HGETALL', keys[3])}
end)

-- rename_end: free the old username if nothing is left of it.
-- KEYS user, auth, renaming, home, home state, then every other key of the user   ARGV old
-- Reply 1, or 0 if something is left
command('rename_end', function(keys, args)
  for i = 6, #keys do
    if exists(keys[i]) then return 0 end
  end
  local new = redis.call('HGET', keys[3], 'to')
  if new then emit('user.renamed', args[1], {old = args[1], new = new}) end
  redis.call('DEL', key.user_version(args[1]), unpack(keys, 1, 5))
  project('registries', args[1])
  project('restyle', args[1])
  project('user_renaming', args[1])
  return 1
end)

-- rename_post: set a post's author. Home feeds keep the post.
-- KEYS post   ARGV id, old, new
command('rename_post', function(keys, args)
  local id, old, new = unpack(args)
  if redis.call('HGET', keys[1], 'user_id') == old then
    redis.call('HSET', keys[1], 'user_id', new, 'username', new)
  end
  cached_states = {}
  for _, name in ipairs({old, new}) do
    project('authored', id, name, 'quiet')
    project('pointed', id, name)
  end
end)

-- rename_like: move a like and its time to the new username.   KEYS post, likes, recent   ARGV id, old, new, now
command('rename_like', function(keys, args)
  local post, likes, recent, id, old, new = keys[1], keys[2], keys[3], args[1], args[2], args[3]
  local since, before = redis.call('ZSCORE', recent, old) or args[4], redis.call('SCARD', likes)
  if redis.call('SREM', likes, old) == 1 then
    redis.call('ZREM', recent, old)
    local moved = redis.call('SADD', likes, new) == 1
    if moved then redis.call('ZADD', recent, since, new) end
    change_count(post, 'likesCount', before, redis.call('SCARD', likes))
    local author = redis.call('HGET', post, 'user_id')
    if author then
      emit_like('post.unliked', id, author, old, 'rename')
      if moved then emit_like('post.liked', id, author, new, 'rename') end
    end
    if author then project_engagement(id, author, tags_of(post), args[4]) end -- both names may have liked it
  end
  project('liking', id, old)
  project('liking', id, new)
end)

-- rename_bookmark: add a bookmark to the new username; the old one is removed afterwards.
-- KEYS bookmarked   ARGV new, id, now, time
command('rename_bookmark', function(keys, args)
  if redis.call('ZADD', keys[1], 'NX', args[4], args[2]) == 1 then project('bookmarking', args[1], args[2], args[3]) end
end)

-- rename_comment   KEYS comment   ARGV id, old, new
command('rename_comment', function(keys, args)
  if redis.call('HGET', keys[1], 'username') == args[2] then redis.call('HSET', keys[1], 'username', args[3]) end
  project('comment_of', args[1], args[2])
  project('comment_of', args[1], args[3])
end)

-- rename_moderator: rename the admin of a ban or suspension.   KEYS post or user   ARGV field, old, new
command('rename_moderator', function(keys, args)
  if redis.call('HGET', keys[1], args[1]) == args[2] then redis.call('HSET', keys[1], args[1], args[3]) end
end)
