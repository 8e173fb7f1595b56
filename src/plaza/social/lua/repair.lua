-- Repairs that the audit runs. Each command recomputes the derived data of one owner or one relation from source data,
-- and changes nothing that is right already.
-- KEYS a key of the owner   ARGV now_ms, then the ids named in the header

-- Entries of one list that a repair reads or deletes.
local MAX_REPAIRED = 10000

-- Sets a counter that is missing or not a number. One that only differs from its set is left to the repair of that
-- finding: another service may be about to change it.
local function complete_count(hash, field, size)
  local stored = redis.call('HGET', hash, field)
  if not (stored and stored:find('^%d+$')) then redis.call('HSET', hash, field, size) end
end

-- repair_user: registries and leaderboard of a user; credentials that another service wrote to the profile.   name
command('repair_user', function(keys, args)
  local user, name = keys[1], args[2]
  if exists(user) then
    redis.call('HSET', user, 'username', name)
    complete_count(user, 'postCount', redis.call('ZCARD', key.user_posts(name)))
    complete_count(user, 'followerCount', redis.call('SCARD', key.user_followers(name)))
    complete_count(user, 'followingCount', redis.call('SCARD', key.user_following(name)))
    local hash = redis.call('HGET', user, 'password_hash')
    if hash and (hash:find('^%$argon2') or hash:find('^%$2[aby]%$')) then
      redis.call('HSETNX', key.auth_user(name), 'password_hash', hash)
    end
    for _, field in ipairs({'suspended_at', 'suspended_by'}) do -- where earlier releases stored it
      local value = redis.call('HGET', user, field)
      if value then redis.call('HSETNX', key.auth_user(name), field, value) end
      redis.call('HDEL', user, field)
    end
  end
  project('registries', name)
end)

-- repair_user_counts: the counters of a user.   name
command('repair_user_counts', function(keys, args)
  local user, name = keys[1], args[2]
  if not exists(user) then return end
  redis.call('HSET', user, 'postCount', redis.call('ZCARD', key.user_posts(name)),
    'followerCount', redis.call('SCARD', key.user_followers(name)),
    'followingCount', redis.call('SCARD', key.user_following(name)))
end)

-- repair_gone: continue the deletion of a user who has keys but no profile.   name
command('repair_gone', function(keys, args)
  if exists(keys[1]) then return end
  local name = args[2]
  -- The deletion reads the sorted sets, so they must have all members of the sets.
  for set, order in pairs({
    [key.user_following(name)] = key.user_following_recent(name),
    [key.user_followers(name)] = key.user_followers_recent(name),
  }) do
    for _, other in ipairs(redis.call('SRANDMEMBER', set, MAX_REPAIRED)) do redis.call('ZADD', order, 'NX', args[1], other) end
  end
  start_deletion(name, args[1])
end)

-- repair_leaving: `users:leaving` from the mark of the account.   name
command('repair_leaving', function(keys, args)
  project('user_leaving', args[2])
end)

-- repair_version: delete the version of a missing profile.   name
command('repair_version', function(keys, args)
  if not exists(key.user(args[2])) then redis.call('DEL', keys[1]) end
end)

-- repair_auth: delete credentials without a profile.   name
command('repair_auth', function(keys, args)
  if not exists(key.user(args[2])) then redis.call('DEL', keys[1]) end
end)

-- Returns the time of a relation from its other side; on a cluster that is on another node, so `at`.
local function other_side_time(other, member, at)
  return not CLUSTERED and redis.call('ZSCORE', other, member) or at
end

-- repair_follow: both sides of a follow.   follower, followed
command('repair_follow', function(keys, args)
  local at, me, target = unpack(args)
  local following, recent = key.user_following(me), key.user_following_recent(me)
  if redis.call('SISMEMBER', following, target) == 0 then
    if redis.call('ZREM', recent, target) == 1 then emit_unfollow(me, target) end
  elseif not redis.call('ZSCORE', recent, target) then
    emit_follow(me, target)
    redis.call('ZADD', recent, other_side_time(key.user_followers_recent(target), me, at), target)
  end
  project('follower', me, target)
end)

-- repair_block, repair_mute: the other side of a block or mute.   user, target
command('repair_block', function(keys, args) project('blocking', args[2], args[3]) end)
command('repair_mute', function(keys, args) project('muting', args[2], args[3]) end)

-- repair_bookmark: the post's side of a bookmark.   name, post
command('repair_bookmark', function(keys, args) project('bookmarking', args[2], args[3], args[1]) end)

-- repair_points: the sum of a user's points.   name
command('repair_points', function(keys, args)
  local points, name, total = keys[1], args[2], 0
  local fields = redis.call('HGETALL', points)
  for i = 1, #fields, 2 do
    if fields[i] ~= 'total' then total = total + (tonumber(fields[i + 1]) or 0) end
  end
  if total == 0 then redis.call('DEL', points) else redis.call('HSET', points, 'total', text(total)) end
  project('leader', name)
end)

-- A user who is not a post's author has neither its points nor the post.
projection('not_pointed', function(id, name)
  if redis.call('HGET', key.post(id), 'user_id') == name then return nil end
  return perform('update_points', {key.user(name), key.user_points(name)}, {name, id, 0})
end)
projection('not_authored', function(id, name)
  if redis.call('HGET', key.post(id), 'user_id') == name then return nil end
  return perform('update_authored', {key.user(name), key.user_posts(name), key.user_followers(name)}, {name, id, '', '0'})
end)

-- repair_authored, repair_pointed: a user's entry of a post, and its points.   post, name
command('repair_authored', function(keys, args)
  cached_states = {}
  local author = redis.call('HGET', keys[1], 'user_id')
  project(author == args[3] and 'authored' or 'not_authored', args[2], args[3])
end)
command('repair_pointed', function(keys, args)
  cached_states = {}
  local author = redis.call('HGET', keys[1], 'user_id')
  project(author == args[3] and 'pointed' or 'not_pointed', args[2], args[3])
end)

-- repair_style: a post's copy of its author's profile.   name, post
projection('restyled', function(name, id)
  local p = redis.call('HMGET', key.user(name), 'avatar', 'display_name', 'role')
  if not exists(key.user(name)) then return nil end
  return perform('force_restyle_post', {key.post(id)}, {name, profile_version(name), p[1] or '', p[2] or '', p[3] or 'user', id})
end)
command('repair_style', function(keys, args) project('restyled', args[2], args[3]) end)

-- A post with a higher version than its author's: raise the author's version, or profile changes would not reach it.
projection('ahead', function(id, name)
  local author, known = unpack(redis.call('HMGET', key.post(id), 'user_id', 'user_version'))
  if author ~= name then return nil end
  return perform('catch_up', {key.user(name)}, {name, finite(known, 0)})
end)

-- catch_up: raise a profile's version.   KEYS user   ARGV name, version of a post
command('catch_up', function(keys, args)
  local version = profile_version(args[1])
  if not exists(keys[1]) or version >= tonumber(args[2]) then return end
  redis.call('SET', key.user_version(args[1]), next_number(args[2]))
  project('restyle', args[1])
end)

-- force_restyle_post: as restyle_post, also with the same version.
-- KEYS post   ARGV author, version, avatar, display_name, role, post
command('force_restyle_post', function(keys, args)
  local author, known = unpack(redis.call('HMGET', keys[1], 'user_id', 'user_version'))
  if author ~= args[1] then return end
  if finite(known, 0) > finite(args[2], 0) then return project('ahead', args[6], author) end
  redis.call('HSET', keys[1], 'user_version', args[2], 'avatar', args[3], 'display_name', args[4], 'user_role', args[5])
end)

-- Removes a comment from Plaza's indexes of a post. Returns whether they had it.
local function remove_indexed_comment(id, comment)
  local recent = key.post_comments_recent(id)
  local created = redis.call('ZSCORE', recent, comment)
  redis.call('ZREM', recent, comment)
  if created then tree.remove(thread_of(id), comment, created) end
  return created and true
end

-- Makes `:comments:recent` match the list of comments, which is source data.
local function repair_comments(id, created)
  local comments, recent = key.post_comments(id), key.post_comments_recent(id)
  local there = {}
  for _, comment in ipairs(redis.call('LRANGE', comments, 0, MAX_REPAIRED - 1)) do
    if there[comment] then redis.call('LREM', comments, -1, comment) end
    there[comment] = true
    if not redis.call('ZSCORE', recent, comment) then
      local at = not CLUSTERED and finite(redis.call('HGET', key.comment(comment), 'created_at'), nil) or created
      redis.call('ZADD', recent, at, comment)
      tree.repair(thread_of(id), comment, comment)
    end
  end
  for _, comment in ipairs(redis.call('ZRANGE', recent, 0, MAX_REPAIRED - 1)) do
    if not there[comment] then remove_indexed_comment(id, comment) end
  end
end

-- Completes the fields of a post, whose author may be in `username` only. Returns the author.
local function complete_post(post, id)
  local author, name, created = unpack(redis.call('HMGET', post, 'user_id', 'username', 'created_at'))
  repair_comments(id, finite(created, 0))
  complete_count(post, 'likesCount', redis.call('SCARD', key.post_likes(id)))
  complete_count(post, 'bookmarksCount', redis.call('SCARD', key.post_bookmarks(id)))
  complete_count(post, 'commentsCount', redis.call('LLEN', key.post_comments(id)))
  author = author or name
  if author then redis.call('HSET', post, 'id', id, 'user_id', author, 'username', author) end
  return author
end

-- repair_post: feeds, ranks and sums of a post; deletes what is left of a deleted one.   post
command('repair_post', function(keys, args)
  local post, at, id = keys[1], args[1], args[2]
  if exists(post) then
    local author = complete_post(post, id)
    if not author then return end -- another service wrote it without an author
    project_everything(id, author, tags_of(post), at)
    project('authored', id, author)
    project('banned', id)
    return
  end
  cached_states = {}
  redis.call('DEL', post, key.post_edits(id))
  project('shown', id)
  project('banned', id)
  project('due', id, at)
  local left = purge(id, key.post_likes(id), key.post_likes_recent(id), key.post_bookmarks(id), key.post_comments(id),
    key.post_comments_recent(id))
  if left > 0 then
    project('post_leaving', id, at)
  else
    redis.call('DEL', key.post_likes_recent(id), key.post_comments_recent(id))
  end
end)

-- repair_post_counts: the counters of a post, and what follows from them.   post
command('repair_post_counts', function(keys, args)
  local post, at, id = keys[1], args[1], args[2]
  local author = redis.call('HGET', post, 'user_id')
  if not exists(post) then return end
  redis.call('HSET', post, 'likesCount', redis.call('SCARD', key.post_likes(id)),
    'bookmarksCount', redis.call('SCARD', key.post_bookmarks(id)),
    'commentsCount', redis.call('LLEN', key.post_comments(id)))
  if author then project_engagement(id, author, tags_of(post), at) end
end)

-- repair_tagged: a post's entries under a hashtag.   post, tag
command('repair_tagged', function(keys, args)
  cached_states = {}
  project('tagged', args[2], args[3])
  project('ranked', args[2], args[3], args[1])
  project('due', args[2], args[1])
end)

-- repair_like: both sides of a like.   post, name
command('repair_like', function(keys, args)
  local post, at, id, name = keys[1], unpack(args)
  local likes, recent = key.post_likes(id), key.post_likes_recent(id)
  local author = redis.call('HGET', post, 'user_id')
  if not exists(post) then redis.call('SREM', likes, name) end
  if redis.call('SISMEMBER', likes, name) == 0 then
    if redis.call('ZREM', recent, name) == 1 and author then emit_like('post.unliked', id, author, name) end
  elseif not redis.call('ZSCORE', recent, name) then
    if author then emit_like('post.liked', id, author, name) end
    redis.call('ZADD', recent, other_side_time(key.user_liked(name), id, at), name)
  end
  project('liking', id, name)
end)

-- repair_comment: remove a comment from a post's list if its hash is missing.   post, comment
projection('comment_listed', function(id, comment, at)
  return perform('confirm_comment', {key.comment(comment)}, {id, comment, at})
end, 2)
command('repair_comment', function(keys, args) project('comment_listed', args[2], args[3], args[1]) end)

projection('comment_missing', function(comment, id, at)
  if exists(key.comment(comment)) then return nil end
  return perform('drop_missing_comment', {key.post(id)}, {id, comment, at})
end, 2)

-- confirm_comment: remove a missing comment from its post.   KEYS comment   ARGV post, comment, now
command('confirm_comment', function(keys, args)
  if not exists(keys[1]) then project('comment_missing', args[2], args[1], args[3]) end
end)

-- drop_missing_comment: the post's side.   KEYS post   ARGV post, comment, now
command('drop_missing_comment', function(keys, args)
  local post, id, comment, at = keys[1], unpack(args)
  local before = redis.call('LLEN', key.post_comments(id))
  redis.call('LREM', key.post_comments(id), 0, comment)
  local indexed = remove_indexed_comment(id, comment)
  change_count(post, 'commentsCount', before, redis.call('LLEN', key.post_comments(id)))
  local author = redis.call('HGET', post, 'user_id')
  if author and indexed then emit_comment_deleted(comment, id, author) end
  if author then project_engagement(id, author, tags_of(post), at) end
end)

-- repair_thread: a comment's place among the replies.   post, comment, the comment whose replies have it (or itself)
command('repair_thread', function(keys, args) tree.repair(thread_of(args[2]), args[3], args[4]) end)

-- repair_comment_edits: delete the old texts of a missing comment.   comment
command('repair_comment_edits', function(keys, args)
  if not exists(key.comment(args[2])) then redis.call('DEL', keys[1]) end
end)

-- repair_commented: a comment's entries at its author and its post.   comment, name
projection('comment_known', function(comment)
  local fields = redis.call('HMGET', key.comment(comment), 'post_id', 'username', 'content', 'created_at')
  local id, name, content, created = unpack(fields)
  if not id then return nil end
  local keys = {key.post(id), key.post_comments(id), key.post_comments_recent(id)}
  return perform('update_comment', keys, {id, comment, name or '', content or '', finite(created, 0)})
end)
command('repair_commented', function(keys, args)
  project('comment_of', args[2], args[3])
  project('comment_known', args[2])
end)

-- update_comment: index a comment that its post's list has, or delete one that it has not.
-- KEYS post, comments, recent   ARGV post, comment, name, content, created
command('update_comment', function(keys, args)
  local id, comment, name, content, created = unpack(args)
  if not redis.call('LPOS', keys[2], comment) then
    remove_indexed_comment(id, comment)
    return project('commented', id, comment)
  end
  if tonumber(created) > 0 then
    redis.call('ZADD', keys[3], created, comment)
  else
    redis.call('ZADD', keys[3], 'NX', 0, comment)
  end
  tree.repair(thread_of(id), comment, comment)
  if name ~= '' then project('commented', id, comment, name, content) end
end)
