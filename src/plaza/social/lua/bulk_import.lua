-- Bulk import: all source data of one owner in one command, so that projections are computed once.

-- import_post: create a post with its likes and comments.
-- KEYS post, likes, likes recent, comments, comments recent, bookmarks, the author's user (one server)
-- ARGV as create_post's without a profile, number of profile values (4 on a cluster), the profile; number of likes, then
-- name and time of each; then id, name, content, time and reply_to ('' for none) of each comment, oldest first
-- Reply 1, or 0 if the post exists or is still being deleted
command('import_post', function(keys, args)
  local post, likes, likes_recent, comments, comments_recent, bookmarks, user = unpack(keys)
  local id, author = args[1], args[2]
  if redis.call('EXISTS', post, likes, comments, bookmarks, key.post_comment_stubs(id)) > 0 then return 0 end
  local own, next = {unpack(args, 1, 8)}, 10 + tonumber(args[9])
  for i = 10, next - 1 do own[#own + 1] = args[i] end
  write_post(post, user, own, true)

  local names, scored, last = {}, {}, next + 2 * tonumber(args[next])
  for i = next + 1, last, 2 do
    names[#names + 1] = args[i]
    scored[#scored + 1], scored[#scored + 2] = args[i + 1], args[i]
    emit_like('post.liked', id, author, args[i], 'import')
    project('liking', id, args[i])
  end
  if #names > 0 then
    redis.call('SADD', likes, unpack(names))
    redis.call('ZADD', likes_recent, unpack(scored))
  end

  local thread = thread_of(id)
  for i = last + 1, #args, 5 do
    local comment, name, content, created, parent = unpack(args, i, i + 4)
    redis.call('RPUSH', comments, comment)
    redis.call('ZADD', comments_recent, created, comment)
    parent = redis.call('ZSCORE', comments_recent, parent) and parent or ''
    tree.add(thread, comment, parent, created)
    emit_comment(comment, id, author, name, parent, 'import')
    project('commented', id, comment, name, content, created)
  end
  redis.call('HSET', post, 'likesCount', redis.call('SCARD', likes), 'commentsCount', redis.call('LLEN', comments))
  -- write_post has projected everything but the points.
  cached_states = {}
  if #args > next then project('pointed', id, author) end
  return 1
end)

-- import_follows: create follows of one user.
-- KEYS user, following, recent   ARGV name, then target and time of each   Reply how many are new
command('import_follows', function(keys, args)
  local user, following, recent = unpack(keys)
  local me, targets, names, scored = args[1], {}, {}, {}
  require_profile(user)
  for i = 2, #args, 2 do targets[#targets + 1] = args[i] end
  for i, known in ipairs(redis.call('SMISMEMBER', following, unpack(targets))) do
    if known == 0 then
      names[#names + 1] = targets[i]
      scored[#scored + 1], scored[#scored + 2] = args[2 * i + 1], targets[i]
      emit_follow(me, targets[i], 'import')
      project('follower', me, targets[i])
    end
  end
  if #names == 0 then return 0 end
  redis.call('SADD', following, unpack(names))
  redis.call('ZADD', recent, unpack(scored))
  local size = redis.call('SCARD', following)
  change_count(user, 'followingCount', size - #names, size)
  return #names
end)
