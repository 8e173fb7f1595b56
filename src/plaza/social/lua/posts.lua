-- Posts, likes and bookmarks. The owner is a post.
--
-- The other side of each relation is a projection, and so are the lists that have the post (post_projections.lua).

-- Likes, bookmarks and comments deleted in one batch.
local PURGE_BATCH = 100

-- Returns the keys of a post's comments, for `tree`.
local function thread_of(id)
  return {
    all = key.post_comments_recent(id),
    parents = key.post_comment_parents(id),
    stubs = key.post_comment_stubs(id),
    top = key.post_comments_top(id),
    replies = function(comment) return key.post_comment_replies(id, comment) end,
  }
end

-- `feeds`: 'quiet' if home feeds need not change, because only the author's name changed or reads merge the post;
-- 'imported' if they must be built again, with the time `at`. Otherwise the post is queued for them.
projection('authored', function(id, author, feeds, at)
  local post = post_state(id)
  if post and post.author ~= author then post = nil end
  return perform('update_authored', {key.user(author), key.user_posts(author), key.user_followers(author)},
    {author, id, post and post.created or '', post and post.version or '', feeds or '', at or ''})
end, 2)

projection('withdraw_post', function(author, id)
  if exists(key.user(author)) then return nil end
  return perform('delete_post', {key.post(id), key.post_likes(id), key.post_likes_recent(id), key.post_bookmarks(id),
    key.post_comments(id), key.post_comments_recent(id), key.post_edits(id)}, {id, '', 0})
end)

projection('styled', function(author, id)
  if not exists(key.user(author)) then return nil end
  local p = redis.call('HMGET', key.user(author), 'avatar', 'display_name', 'role')
  return perform('restyle_post', {key.post(id)}, {id, profile_version(author), p[1] or '', p[2] or '', p[3] or 'user'})
end)

projection('unpushed', function(id)
  local post = post_state(id)
  if post and post.shown then return nil end
  return {'ZREM', key.feeds_push(), id}
end)

projection('push', function(id, created)
  return {'ZADD', key.feeds_push(), created, id}
end, 1)

-- Queues the removal of a post that its author no longer has from home feeds.
projection('drop', function(id, name, at)
  return {'ZADD', key.feeds_drop(), at, name .. '|' .. id}
end, 2)

-- Queues the removal of a banned post from home feeds; a post that is shown again leaves the queue.
projection('drop_banned', function(id, name, at)
  local post, entry = post_state(id), name .. '|' .. id
  if post and post.shown then return {'ZREM', key.feeds_drop(), entry} end
  return {'ZADD', key.feeds_drop(), at, entry}
end, 2)

-- An imported post is older than what reads merge, and imports are too large to push. So home feeds that were built
-- before it are built again. `update_authored` requests this, because a feed is built from the authors' lists.
projection('imported', function(id, at)
  return {'SET', key.feeds_imported(), at .. ':' .. id}
end, 1)

-- update_authored: the author's side of a post.
-- KEYS user, posts, followers
-- ARGV name, post, created ('' if deleted), version of the profile it copied, how home feeds change ('quiet', 'imported' or
-- '': see the projection), time of the import
command('update_authored', function(keys, args)
  local user, posts, followers = unpack(keys)
  local name, id, created, version = unpack(args)
  local updates_feeds = args[5] ~= 'quiet' and exists(followers)
  local role_field, version_field = unpack(redis.call('HMGET', user, 'role', 'version'))
  local role, latest = role_from(user, role_field), version_from(name, version_field)
  local before = redis.call('ZCARD', posts)
  if created == '' then
    if redis.call('ZREM', posts, id) == 1 and updates_feeds then project('drop', id, name, clock_ms()) end
  elseif not role then
    project('withdraw_post', name, id)
  else
    redis.call('ZADD', posts, created, id)
    if finite(version, 0) < finite(latest, 0) then project('styled', name, id) end
    if args[5] == 'imported' then
      project('imported', id, args[6])
    elseif updates_feeds then
      project('push', id, created)
    end
  end
  change_count(user, 'postCount', before, redis.call('ZCARD', posts))
end)

-- restyle_post: copy the author's profile to a post, unless the post has a newer version.
-- KEYS post   ARGV id, version, avatar, display_name, role
command('restyle_post', function(keys, args)
  local id, known = unpack(redis.call('HMGET', keys[1], 'user_id', 'user_version'))
  if not id or finite(known, 0) >= finite(args[2], 0) then return 0 end
  redis.call('HSET', keys[1], 'user_version', args[2], 'avatar', args[3], 'display_name', args[4], 'user_role', args[5])
  return 1
end)

local function emit_post(type, id, author, origin)
  emit(type, id, {post = id, author = author}, origin)
end

-- Adds a new post to every list that has it, on one server: at once what the projections would do. `count` is the author's
-- `postCount`.
local function list_new_post(id, user, author, tags, created, at, count)
  redis.call('ZADD', key.explore_feed(), created, id)
  for _, tag in ipairs(tags) do
    redis.call('ZADD', key.hashtag_posts(tag), created, id)
    redis.call('ZADD', key.hashtag_ranked(tag), 0, id)
  end
  if #tags > 0 then project('due', id, at) end
  local posts = key.user_posts(author)
  local added = redis.call('ZADD', posts, created, id)
  local size = redis.call('ZCARD', posts)
  change_count(user, 'postCount', size - added, size, count)
  if exists(key.user_followers(author)) then redis.call('ZADD', key.feeds_push(), created, id) end
end

-- Writes a new post; returns what it copied of its author's profile.
-- `imported`: it comes from another system.
local function write_post(post, user, args, imported)
  local id, author, content, media, tags, created, at, pictures = unpack(args)
  local style, count = {unpack(args, 9)}, nil
  if user then
    local avatar, display_name, role, version, posts =
      unpack(redis.call('HMGET', user, 'avatar', 'display_name', 'role', 'version', 'postCount'))
    if not role and not exists(user) then fail('no_profile', 'You have no profile. Register first.') end
    style, count = {text(version_from(author, version)), avatar, display_name, role}, posts
  end
  -- Before all else: a key of the wrong type may end this at any write, and a later run finds the post and does nothing.
  emit_post('post.created', id, author, imported and 'import')
  redis.call('HSET', post, 'id', id, 'user_id', author, 'username', author, 'content', content, 'created_at', created,
    'hashtags', tags, 'likesCount', 0, 'commentsCount', 0, 'bookmarksCount', 0, 'user_version', style[1] or 0,
    'avatar', style[2] or '', 'display_name', style[3] or '', 'user_role', style[4] or 'user')
  if media ~= '' then redis.call('HSET', post, 'media_url', media) end
  if pictures ~= '' then redis.call('HSET', post, 'media', pictures) end
  -- It has no points, so its author's sum does not change.
  local state = cache_state(id, {author, created, tags, false, 0, 0, 0, style[1]})
  if imported then
    local is_merged = finite(created, 0) >= finite(at, 0) - MERGE_OVERLAP_MS
    project_lists(id, state.tags, at)
    project('authored', id, author, is_merged and 'quiet' or 'imported', at)
  elseif user then
    list_new_post(id, user, author, state.tags, created, at, count)
  else
    project_lists(id, state.tags, at)
    project('authored', id, author)
  end
  return {style[2] or '', style[3] or '', style[4] or 'user'}
end

-- create_post   KEYS post, the author's user (one server)
-- ARGV id, author, content, media_url, tags, created, now, pictures, and on a cluster version, avatar, display_name, role
-- Reply {avatar, display_name, role}, or the post if it exists
command('create_post', function(keys, args)
  if exists(keys[1]) then return redis.call('HGETALL', keys[1]) end
  return write_post(keys[1], keys[2], args)
end)

-- replace_pictures: change the pictures of a post, if no one else has.
-- KEYS post   ARGV pictures before, pictures after (both '' for none), media_url after   Reply 1, or 0 if they have changed
command('replace_pictures', function(keys, args)
  local post, before, after, media = keys[1], args[1], args[2], args[3]
  if (redis.call('HGET', post, 'media') or '') ~= before or not exists(post) then return 0 end
  if after == '' then redis.call('HDEL', post, 'media') else redis.call('HSET', post, 'media', after) end
  if media == '' then redis.call('HDEL', post, 'media_url') else redis.call('HSET', post, 'media_url', media) end
  return 1
end)

-- Returns the STATE_FIELDS of a visible post, then its author; fails if it is missing, banned or hidden by a block.
-- Sync (`from`) may also write to a banned post.
local function require_fields(post, blocked, blocked_by, from)
  local fields = redis.call('HMGET', post, unpack(STATE_FIELDS))
  local author, banned = fields[1], fields[4]
  local hidden = author and blocked and is_in_either(blocked, blocked_by, author)
  if not author or (banned and not from) or hidden then fail('not_found', 'No post has this id.') end
  return fields, author
end

-- As require_fields(), but returns the author and the tags.
local function require_post(post, blocked, blocked_by, from)
  local fields, author = require_fields(post, blocked, blocked_by, from)
  return author, tags_from(post, fields[3])
end

-- Changes the text and the tags of a post and keeps the old ones. Returns false if nothing changed.
local function rewrite_post(post, edits, id, author, content, tags, at)
  local before, old_tags = redis.call('HGET', post, 'content'), table.concat(tags_of(post), ',')
  if before == content and old_tags == tags then return false end
  redis.call('RPUSH', edits, cjson.encode({content = before, hashtags = old_tags, ['until'] = tonumber(at)}))
  redis.call('LTRIM', edits, -MAX_EDITS, -1)
  redis.call('HSET', post, 'content', content, 'hashtags', tags, 'edited_at', at)
  local all, seen = split(tags), {}
  for _, tag in ipairs(all) do seen[tag] = true end
  for _, tag in ipairs(split(old_tags)) do
    if not seen[tag] then all[#all + 1] = tag end
  end
  project_everything(id, author, all, at)
  return true
end

-- edit_post   KEYS post, edits   ARGV id, caller, content, tags, now   Reply the post
command('edit_post', function(keys, args)
  local post, edits = keys[1], keys[2]
  local id, who, content, tags, at = unpack(args)
  local author = require_post(post)
  if author ~= who then fail('forbidden', 'Only its author can edit a post.') end
  if rewrite_post(post, edits, id, author, content, tags, at) then emit_post('post.edited', id, author) end
  return redis.call('HGETALL', post)
end)

-- sync_post: create or update a post from another system.
-- KEYS post, edits, likes, bookmarks, comments, the author's user (one server)   ARGV as create_post's
-- Reply 'created', 'updated' or 'unchanged'
command('sync_post', function(keys, args)
  local post, edits, likes, bookmarks, comments, user = unpack(keys)
  local id, author, content, media, tags, created, at = unpack(args)
  local known, old_media, old_created = unpack(redis.call('HMGET', post, 'user_id', 'media_url', 'created_at'))
  if not known then
    if exists(likes) or exists(bookmarks) or exists(comments) or exists(key.post_comment_stubs(id)) then
      fail('conflict', 'The post with this id is still being deleted. Try again later.', {field = 'id'})
    end
    write_post(post, user, args, true)
    return 'created'
  end
  if known ~= author then fail('conflict', 'This post has another author.', {field = 'username'}) end
  local changed = rewrite_post(post, edits, id, author, content, tags, at)
  -- A record without one does not remove the address of the post's own picture.
  local is_own = media == '' and redis.call('HEXISTS', post, 'media') == 1
  if (old_media or '') ~= media and not is_own then
    changed = true
    if media == '' then redis.call('HDEL', post, 'media_url') else redis.call('HSET', post, 'media_url', media) end
  end
  if old_created ~= created then
    changed = true
    redis.call('HSET', post, 'created_at', created)
    project_everything(id, author, split(tags), at)
    project('authored', id, author, 'imported', at)
  end
  if changed then emit_post('post.edited', id, author, 'import') end
  return changed and 'updated' or 'unchanged'
end)

-- ban_post: remove a post from every feed and sum, or end a ban.
-- KEYS post   ARGV id, admin ('' ends it), now, origin (none by default)   Reply the post
command('ban_post', function(keys, args)
  local post, id, by, at = keys[1], args[1], args[2], args[3]
  local author, banned, created = unpack(redis.call('HMGET', post, 'user_id', 'banned', 'created_at'))
  if not author then fail('not_found', 'No post has this id.') end
  if by ~= '' and not banned then
    redis.call('HSET', post, 'banned', 'true', 'banned_at', at, 'banned_by', by)
    emit_post('post.banned', id, author, args[4])
  elseif by == '' and banned then
    redis.call('HDEL', post, 'banned', 'banned_at', 'banned_by')
    emit_post('post.unbanned', id, author)
    project('push', id, finite(created, 0))
  else
    return redis.call('HGETALL', post)
  end
  project_everything(id, author, tags_of(post), at)
  project('banned', id)
  project('unpushed', id)
  project('drop_banned', id, author, at)
  return redis.call('HGETALL', post)
end)

projection('liking', function(id, name)
  local since = redis.call('SISMEMBER', key.post_likes(id), name) == 1
    and (redis.call('ZSCORE', key.post_likes_recent(id), name) or 0)
  if since then return {'ZADD', key.user_liked(name), since, id} end
  return {'ZREM', key.user_liked(name), id}
end)

-- Updates the user's side of a like that has changed; `since` is its time, or nil. On one server it is just what the
-- projection would read.
local function update_liking(id, name, since)
  if CLUSTERED then
    project('liking', id, name)
  elseif since then
    redis.call('ZADD', key.user_liked(name), since, id)
  else
    redis.call('ZREM', key.user_liked(name), id)
  end
end

-- Emits 'post.liked' or 'post.unliked'.
local function emit_like(type, id, author, name, origin)
  emit(type, id, {post = id, author = author, username = name}, origin)
end

-- like   KEYS post, likes, recent, the user's blocked and blocked_by (one server)
-- ARGV id, name, now, time; from sync also 'sync', or 'sync_with_time' if the record has the time
-- Reply {1, likes}; {0, likes} if nothing changed, {2, likes} if only the time did
command('like', function(keys, args)
  local post, likes, recent, blocked, blocked_by = unpack(keys)
  local id, name, at, since = unpack(args)
  local fields, author = require_fields(post, blocked, blocked_by, args[5])
  local changed = redis.call('SADD', likes, name)
  local size = redis.call('SCARD', likes)
  if changed == 1 then
    redis.call('ZADD', recent, since, name)
    fields[5] = change_count(post, 'likesCount', size - 1, size, fields[5])
    emit_like('post.liked', id, author, name, origin_of(args[5]))
    update_liking(id, name, since)
    project_engagement_of(id, fields, at)
  elseif redis.call('ZADD', recent, 'NX', since, name) == 1 then -- another service added the like
    fields[5] = text(size)
    redis.call('HSET', post, 'likesCount', size)
    emit_like('post.liked', id, author, name, origin_of(args[5]))
    update_liking(id, name, since)
    project_engagement_of(id, fields, at)
  elseif update_time(recent, name, since, args[5]) then
    project('liking', id, name)
    changed = 2
  end
  return {changed, size}
end)

-- complete_likes: index the likes that another service wrote. The documented counter and scores are left to that service.
-- KEYS post, likes, recent   ARGV id, now
command('complete_likes', function(keys, args)
  local post, likes, recent, id, at = keys[1], keys[2], keys[3], args[1], args[2]
  local author = redis.call('HGET', post, 'user_id')
  if not author then return end
  for _, name in ipairs(complete_index(likes, recent, at)) do
    local liked = redis.call('SISMEMBER', likes, name) == 1
    emit_like(liked and 'post.liked' or 'post.unliked', id, author, name)
    project('liking', id, name)
  end
end)

-- liked: return which posts a user likes. One server only.   ARGV name, id, …   Reply {1 or 0, …}
query('liked', function(_, args)
  local flags = {}
  for i = 2, #args do flags[i - 1] = redis.call('SISMEMBER', key.post_likes(args[i]), args[1]) end
  return flags
end)

-- unlike: a banned post can be unliked too.   KEYS post, likes, recent   ARGV id, name, now   Reply {changed, likes}
command('unlike', function(keys, args)
  local post, likes, recent, id, name, at = keys[1], keys[2], keys[3], args[1], args[2], args[3]
  local fields = redis.call('HMGET', post, unpack(STATE_FIELDS))
  local author = fields[1]
  if not author then fail('not_found', 'No post has this id.') end
  local changed = redis.call('SREM', likes, name)
  local size = redis.call('SCARD', likes)
  if changed == 1 then
    redis.call('ZREM', recent, name)
    fields[5] = change_count(post, 'likesCount', size + 1, size, fields[5])
    emit_like('post.unliked', id, author, name)
    update_liking(id, name)
    project_engagement_of(id, fields, at)
  end
  return {changed, size}
end)

-- The user's `:bookmarked` is source data; this updates the post's side from it.
projection('bookmarking', function(name, id, at)
  local on = redis.call('ZSCORE', key.user_bookmarked(name), id) and 1 or 0
  return perform('update_bookmark', {key.post(id), key.post_bookmarks(id)}, {id, name, on, at})
end, 2)

projection('withdraw_bookmark', function(id, name, at)
  if exists(key.post(id)) then return nil end
  return perform('unbookmark', {key.user_bookmarked(name)}, {name, id, at})
end, 2)

-- bookmark   KEYS bookmarked, and on one server the post, blocked, blocked_by
-- ARGV name, id, now, time; from sync also 'sync', or 'sync_with_time' if the record has the time
-- Reply 1; 0 if nothing changed, 2 if only the time did
command('bookmark', function(keys, args)
  local bookmarked, post, blocked, blocked_by = unpack(keys)
  local name, id, at, since = unpack(args)
  if post then require_post(post, blocked, blocked_by, args[5]) end
  project('bookmarking', name, id, at) -- also if nothing changes: another service may have written one side only
  if redis.call('ZADD', bookmarked, 'NX', since, id) == 1 then return 1 end
  return update_time(bookmarked, id, since, args[5]) and 2 or 0
end)

-- unbookmark   KEYS bookmarked   ARGV name, id, now   Reply 1, or 0 if nothing changed
command('unbookmark', function(keys, args)
  project('bookmarking', args[1], args[2], args[3])
  return redis.call('ZREM', keys[1], args[2])
end)

-- update_bookmark: the post's side of a bookmark.   KEYS post, bookmarks   ARGV id, name, 1 or 0, now
command('update_bookmark', function(keys, args)
  local post, bookmarks, id, name, on, at = keys[1], keys[2], args[1], args[2], args[3], args[4]
  local author = redis.call('HGET', post, 'user_id')
  if on == '1' and not author then return project('withdraw_bookmark', id, name, at) end
  local changed = redis.call(on == '1' and 'SADD' or 'SREM', bookmarks, name)
  if changed == 1 and author then
    local size = redis.call('SCARD', bookmarks)
    change_count(post, 'bookmarksCount', on == '1' and size - 1 or size + 1, size)
    project_engagement(id, author, tags_of(post), at)
  end
end)

projection('unbookmarked', function(id, name)
  if exists(key.post(id)) then return nil end
  return perform('drop_bookmark', {key.user_bookmarked(name)}, {id})
end)

-- drop_bookmark: the user's side of a bookmark of a deleted post.   KEYS bookmarked   ARGV post
command('drop_bookmark', function(keys, args)
  redis.call('ZREM', keys[1], args[1])
end)

projection('post_leaving', function(id, at)
  if not exists(key.post(id)) and (exists(key.post_likes(id)) or exists(key.post_bookmarks(id))
    or exists(key.post_comments(id)) or exists(key.post_comment_stubs(id))) then
    return {'ZADD', key.posts_leaving(), 'NX', at, id}
  end
  return {'ZREM', key.posts_leaving(), id}
end, 1)

-- Deletes a batch of likes, bookmarks and comments of a deleted post. Returns how many are left.
local function purge(id, likes, likes_recent, bookmarks, comments, comments_recent)
  local names = redis.call('ZRANGE', likes_recent, 0, PURGE_BATCH - 1)
  if #names == 0 then names = redis.call('SRANDMEMBER', likes, PURGE_BATCH) end -- likes of another service
  for _, name in ipairs(names) do
    redis.call('SREM', likes, name)
    redis.call('ZREM', likes_recent, name)
    project('liking', id, name)
  end
  for _, name in ipairs(redis.call('SRANDMEMBER', bookmarks, PURGE_BATCH)) do
    redis.call('SREM', bookmarks, name)
    project('unbookmarked', id, name)
  end
  local listed = redis.call('ZRANGE', comments_recent, 0, PURGE_BATCH - 1)
  if #listed == 0 then listed = redis.call('LRANGE', comments, 0, PURGE_BATCH - 1) end
  for _, comment in ipairs(listed) do
    redis.call('LREM', comments, 0, comment)
    redis.call('ZREM', comments_recent, comment)
    project('commented', id, comment)
  end
  local stubs = tree.purge(thread_of(id), listed)
  return redis.call('SCARD', likes) + redis.call('SCARD', bookmarks) + redis.call('LLEN', comments) + stubs
end

-- delete_post: delete a post and its entries in all lists. purge_post deletes the rest of its likes, bookmarks and
-- comments.
-- KEYS post, likes, likes recent, bookmarks, comments, comments recent, edits
-- ARGV id, caller ('' for an admin or an account deletion), now   Reply {existed, left}
command('delete_post', function(keys, args)
  local post, likes, likes_recent, bookmarks, comments, comments_recent, edits = unpack(keys)
  local id, who, at = args[1], args[2], args[3]
  local author, banned = unpack(redis.call('HMGET', post, 'user_id', 'banned'))
  local tags = tags_of(post)
  if author and who ~= '' and who ~= author then fail('forbidden', 'Only its author or an admin can delete a post.') end
  if author then
    redis.call('DEL', post, edits)
    emit_post('post.deleted', id, author)
    project_everything(id, author, tags, at)
    project('authored', id, author)
    project('unpushed', id)
    if banned then project('banned', id) end
  end
  local left = purge(id, likes, likes_recent, bookmarks, comments, comments_recent)
  if left > 0 then project('post_leaving', id, at) end
  return {author and 1 or 0, left}
end)

-- purge_post: delete the next batch.   KEYS as delete_post's   ARGV id, now   Reply how many are left
command('purge_post', function(keys, args)
  local left = 0
  if not exists(keys[1]) then left = purge(args[1], keys[2], keys[3], keys[4], keys[5], keys[6]) end
  if left == 0 then project('post_leaving', args[1], args[2]) end
  return left
end)
