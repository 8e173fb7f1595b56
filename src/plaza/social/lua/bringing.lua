-- Bringing in a post together with everybody who liked it and what was said below it, as another system has them: the
-- facts of one owner, in one step, so that what follows from them is computed once and not for every like.

-- bring_post: a post that is not here yet, with its likes and comments.
-- KEYS post, likes, likes' recent, comments, comments' recent, bookmarks, the author's user (one server)
-- ARGV as create_post's without a style, how many parts the style has (4 on a cluster), the style; how many likes, then
-- name and since of each; then comment, name, content and time of each comment, oldest first
-- Reply 1, or 0 if the post is here already, or still being deleted: nothing has been done then
verb('bring_post', function(keys, args)
  local post, likes, likes_recent, comments, comments_recent, bookmarks, user = unpack(keys)
  local id, author, tags, at = args[1], args[2], split(args[5]), args[7]
  if exists(post) or exists(likes) or exists(comments) or exists(bookmarks) then return 0 end
  local own, next = {unpack(args, 1, 7)}, 9 + tonumber(args[8])
  for i = 9, next - 1 do own[#own + 1] = args[i] end
  write_post(post, user, own)

  local names, scored, last = {}, {}, next + 2 * tonumber(args[next])
  for i = next + 1, last, 2 do
    names[#names + 1] = args[i]
    scored[#scored + 1], scored[#scored + 2] = args[i + 1], args[i]
    effect('liking', id, args[i])
  end
  if #names > 0 then
    redis.call('SADD', likes, unpack(names))
    redis.call('ZADD', likes_recent, unpack(scored))
  end

  for i = last + 1, #args, 4 do
    redis.call('RPUSH', comments, args[i])
    redis.call('ZADD', comments_recent, args[i + 3], args[i])
    effect('commented', id, args[i], args[i + 1], args[i + 2])
  end
  redis.call('HSET', post, 'likesCount', redis.call('SCARD', likes), 'commentsCount', redis.call('LLEN', comments))
  engaged(id, author, tags, at)
  return 1
end)
