-- Names: a person takes another one. The owner is a username, or whatever names one.
--
-- `user:<username>:renaming` says it on both sides: `to` beside the old name, `from` beside the new one. While it is
-- there neither name is to be had. The old profile stays until nothing else is left under it, so that what was already
-- on its way to the old name lands there, and is moved too.

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
  if to or from then fail('conflict', 'This name is being changed already.', {username = args[1]}) end
  if exists(leaving) then fail('conflict', 'This account is being deleted.', {username = args[1]}) end
  if not exists(user) then fail('no_profile', 'There is nobody of that name.', {username = args[1]}) end
  redis.call('HSET', renaming, 'to', args[2], 'since', text(now(args[3])), 'phase', 'begun')
  project('user_renaming', args[1])
  return 'begun'
end)

-- rename_reserve: nobody else gets the new name.   KEYS user, auth, leaving, renaming   ARGV old
command('rename_reserve', function(keys, args)
  local renaming = keys[4]
  if redis.call('HGET', renaming, 'from') == args[1] then return end
  for _, k in ipairs(keys) do
    if exists(k) then fail('username_taken', 'That name is taken.') end
  end
  redis.call('HSET', renaming, 'from', args[1])
end)

-- rename_cancel: the new name was not to be had.   KEYS renaming   ARGV old
command('rename_cancel', function(keys, args)
  redis.call('DEL', keys[1])
  project('user_renaming', args[1])
end)

-- rename_freeze: whoever has a token of the old name has none from now on.
-- KEYS auth, renaming   ARGV old, now
command('rename_freeze', function(keys, args)
  drop_families(keys[1])
  project('cutoff', args[1], args[2])
  redis.call('HSET', keys[2], 'phase', 'moving')
end)

-- The new profile says what the old one does and no more, but for what is counted. Somebody may have changed it under
-- the new name meanwhile, and posts have copied that: then what they have is an older version still.
local function copy_profile(user, name, posts, followers, following, fields)
  if not exists(user) then redis.call('HSET', user, unpack(fields)) end
  local version, changes = tonumber(redis.call('HGET', user, 'version') or 0), {}
  for _, field in ipairs(redis.call('HKEYS', user)) do changes[field] = false end
  for i = 1, #fields, 2 do changes[fields[i]] = fields[i + 1] end
  if version > tonumber(changes.version or 0) then changes.version = text(version) end
  changes.username, changes.postCount = name, text(redis.call('ZCARD', posts))
  changes.followerCount = text(redis.call('SCARD', followers))
  changes.followingCount = text(redis.call('SCARD', following))
  change_profile(user, name, changes)
  project('registries', name)
end

-- rename_arrive: the profile stands under the new name.
-- KEYS user, renaming, posts, followers, following   ARGV new, field, value, …
command('rename_arrive', function(keys, args)
  local user, renaming, posts, followers, following = unpack(keys)
  if exists(renaming) then copy_profile(user, args[1], posts, followers, following, {unpack(args, 2)}) end
end)

-- rename_settle_in: the last word of the old profile, and the password: the person may sign in.
-- KEYS user, renaming, posts, followers, following, auth
-- ARGV new, number of credentials, credential, value, …, then field, value, …
command('rename_settle_in', function(keys, args)
  local user, renaming, posts, followers, following, auth = unpack(keys)
  if not exists(renaming) then return end -- a run that died had come this far; the person may have changed it all since
  local credentials = tonumber(args[2])
  for i = 3, 2 + 2 * credentials, 2 do redis.call('HSET', auth, args[i], args[i + 1]) end
  copy_profile(user, args[1], posts, followers, following, {unpack(args, 3 + 2 * credentials)})
  redis.call('DEL', renaming)
  project('restyle', args[1])
end)

-- rename_close: from here on the new name is its owner's.   KEYS renaming, user, auth   Reply {profile, credentials}
command('rename_close', function(keys)
  redis.call('HSET', keys[1], 'phase', 'closing')
  return {redis.call('HGETALL', keys[2]), redis.call('HGETALL', keys[3])}
end)

-- rename_end: the old name is free, if nothing is left of it.
-- KEYS user, auth, renaming, home, home state, then every other key of the user   ARGV old
-- Reply 1, or 0 if something is left
command('rename_end', function(keys, args)
  for i = 6, #keys do
    if exists(keys[i]) then return 0 end
  end
  redis.call('DEL', unpack(keys, 1, 5))
  project('registries', args[1])
  project('restyle', args[1])
  project('user_renaming', args[1])
  return 1
end)

-- rename_post: a post has its author's new name. Feeds that have it keep it: nobody is told of it anew.
-- KEYS post   ARGV id, old, new
command('rename_post', function(keys, args)
  local id, old, new = unpack(args)
  if redis.call('HGET', keys[1], 'user_id') == old then
    redis.call('HSET', keys[1], 'user_id', new, 'username', new)
  end
  read = {}
  for _, name in ipairs({old, new}) do
    project('authored', id, name, 'quiet')
    project('pointed', id, name)
  end
end)

-- rename_like: a like has another name under it, and its time.   KEYS post, likes, recent   ARGV id, old, new, now
command('rename_like', function(keys, args)
  local post, likes, recent, id, old, new = keys[1], keys[2], keys[3], args[1], args[2], args[3]
  local since = redis.call('ZSCORE', recent, old)
  if redis.call('SREM', likes, old) == 1 then
    redis.call('ZREM', recent, old)
    if redis.call('SADD', likes, new) == 1 then redis.call('ZADD', recent, since, new) end
    set_count(post, 'likesCount', redis.call('SCARD', likes))
    local author = redis.call('HGET', post, 'user_id')
    if author then engaged(id, author, tags_of(post), args[4]) end -- both names may have liked it
  end
  project('liking', id, old)
  project('liking', id, new)
end)

-- rename_bookmark: the new name has it too; taking it from the old one comes after.
-- KEYS bookmarked   ARGV new, id, now, since when
command('rename_bookmark', function(keys, args)
  if redis.call('ZADD', keys[1], 'NX', args[4], args[2]) == 1 then project('bookmarking', args[1], args[2], args[3]) end
end)

-- rename_comment   KEYS comment   ARGV id, old, new
command('rename_comment', function(keys, args)
  if redis.call('HGET', keys[1], 'username') == args[2] then redis.call('HSET', keys[1], 'username', args[3]) end
  project('comment_of', args[1], args[2])
  project('comment_of', args[1], args[3])
end)

-- rename_signature: who banned or suspended it has another name.   KEYS post or user   ARGV field, old, new
command('rename_signature', function(keys, args)
  if redis.call('HGET', keys[1], args[1]) == args[2] then redis.call('HSET', keys[1], args[1], args[3]) end
end)
