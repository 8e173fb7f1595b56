-- Comments on posts, and replies to them. The owner is a post; the hash of a comment is a projection of the post's list,
-- except its text, which its author edits. `tree` has the replies.

-- store_comment: write a comment's hash. A text older than the last edit is not written.
-- KEYS comment, edits   ARGV id, post, name, content, created, reply_to ('' for none), time of the text ('' for unknown)
command('store_comment', function(keys, args)
  local comment, edits = keys[1], keys[2]
  local id, post, name, content, created, parent, at = unpack(args)
  redis.call('HSET', comment, 'id', id, 'post_id', post, 'username', name, 'created_at', created)
  if parent == '' then redis.call('HDEL', comment, 'reply_to') else redis.call('HSET', comment, 'reply_to', parent) end
  local edited = redis.call('HGET', comment, 'edited_at')
  if not edited or finite(edited, 0) < finite(at, 0) then tree.rewrite(comment, edits, content, at) end
end)

-- Without a name the post is being deleted. The comment's hash has its author's current name, who may have been renamed
-- since the caller read it; a given name loses the comment too.
projection('commented', function(id, comment, name, content, text_at)
  local at = redis.call('ZSCORE', key.post_comments_recent(id), comment)
  local hash = {key.comment(comment), key.comment_edits(comment)}
  if not at then
    local dropped = {perform('drop_comment', hash, {comment})}
    if name then dropped[2] = {'ZREM', key.user_comments(name), comment} end
    return dropped
  end
  if not name then return nil end
  local parent = redis.call('HGET', key.post_comment_parents(id), comment) or ''
  return {
    perform('store_comment', hash, {comment, id, name, content, at, parent, text_at or ''}),
    {'ZADD', key.user_comments(name), at, comment},
  }
end, 2)

-- Inserts a comment by its time: sync can add an old one.
local function place_comment(comments, recent, comment, created)
  redis.call('ZADD', recent, created, comment)
  local later = redis.call('ZRANGEBYSCORE', recent, '(' .. created, '+inf', 'LIMIT', 0, 1)[1]
  if later then
    redis.call('LINSERT', comments, 'BEFORE', later, comment)
  else
    redis.call('RPUSH', comments, comment)
  end
end

-- `parent` is '' if it replies to none.
local function emit_comment(comment, id, author, name, parent, origin)
  local data = {comment = comment, post = id, author = author, username = name}
  if parent ~= '' then data.reply_to = parent end
  emit('comment.created', comment, data, origin)
end

-- Without a name if it is unknown, because another service deleted the comment. Call it before `tree.remove`.
local function emit_comment_deleted(comment, id, author, name)
  local parent = redis.call('HGET', key.post_comment_parents(id), comment) or nil
  emit('comment.deleted', comment, {comment = comment, post = id, author = author, username = name, reply_to = parent})
end

-- Fails unless a comment can be replied to: it is one of the post's, and by no user that a block hides. On a cluster the
-- caller has checked the block.
local function require_parent(recent, parent, blocked, blocked_by)
  local found = redis.call('ZSCORE', recent, parent)
  local name = found and blocked and redis.call('HGET', key.comment(parent), 'username')
  local hidden = name and (redis.call('ZSCORE', blocked, name) or redis.call('ZSCORE', blocked_by, name))
  if not found or hidden then fail('invalid', 'No comment of this post has this id.', {field = 'reply_to'}) end
end

-- create_comment   KEYS post, comments, recent, and on one server the author's user, blocked, blocked_by
-- ARGV id, comment, name, content, created, now, reply_to ('' for none); from sync also 'sync', or 'sync_with_time' if the
-- record has the time
-- Reply {1, or 0 if it exists (sync updates its text); the author's avatar on one server}
command('create_comment', function(keys, args)
  local post, comments, recent, user, blocked, blocked_by = unpack(keys)
  local id, comment, name, content, created, at, parent, source = unpack(args)
  local author, tags = require_post(post, blocked, blocked_by, source)
  local thread = thread_of(id)
  if user then require_profile(user) end
  -- Sync may send a comment that another service has added to the list.
  if source and not redis.call('ZSCORE', recent, comment) and redis.call('LPOS', comments, comment) then
    redis.call('ZADD', recent, created, comment)
    local known = redis.call('ZSCORE', recent, parent) and parent or ''
    tree.add(thread, comment, known, created)
    emit_comment(comment, id, author, name, known, origin_of(source))
  end
  local since = redis.call('ZSCORE', recent, comment)
  if since then
    if update_time(recent, comment, created, source) then
      redis.call('LREM', comments, 1, comment)
      place_comment(comments, recent, comment, created)
      tree.set_time(thread, comment, created)
    end
    project('commented', id, comment, name, content, source and at or since)
    return {0, ''}
  end
  if parent ~= '' then require_parent(recent, parent, blocked, blocked_by) end
  place_comment(comments, recent, comment, created)
  tree.add(thread, comment, parent, created)
  local size = redis.call('LLEN', comments)
  change_count(post, 'commentsCount', size - 1, size)
  emit_comment(comment, id, author, name, parent, origin_of(source))
  project('commented', id, comment, name, content, at)
  project_engagement(id, author, tags, at)
  return {1, user and redis.call('HGET', user, 'avatar') or ''}
end)

-- edit_comment   KEYS comment, edits   ARGV id, caller, content, now   Reply the comment
command('edit_comment', function(keys, args)
  local comment, edits, id, who, content, at = keys[1], keys[2], unpack(args)
  local name, post = unpack(redis.call('HMGET', comment, 'username', 'post_id'))
  if not name then fail('not_found', 'No comment has this id.') end
  if name ~= who then fail('forbidden', 'Only its author can edit a comment.') end
  if tree.rewrite(comment, edits, content, at) then
    emit('comment.edited', id, {comment = id, post = post or '', username = name})
  end
  return redis.call('HGETALL', comment)
end)

-- delete_comment: a comment with replies becomes a stub.
-- KEYS post, comments, recent   ARGV id, comment, author, now   Reply the stub that prune_comments continues with, or ''
command('delete_comment', function(keys, args)
  local post, comments, recent, id, comment = keys[1], keys[2], keys[3], args[1], args[2]
  local created = redis.call('ZSCORE', recent, comment) or args[4]
  local indexed, listed = redis.call('ZREM', recent, comment), redis.call('LREM', comments, 1, comment)
  if indexed + listed == 0 then return '' end
  local size = redis.call('LLEN', comments)
  change_count(post, 'commentsCount', size + listed, size)
  project('commented', id, comment, args[3], '')
  local author = redis.call('HGET', post, 'user_id')
  if author then
    emit_comment_deleted(comment, id, author, args[3])
    project_engagement(id, author, tags_of(post), args[4])
  end
  return tree.remove(thread_of(id), comment, created)
end)

-- prune_comments: remove stubs without replies, from one of them upwards.   KEYS post   ARGV id, stub   Reply as delete_comment
command('prune_comments', function(keys, args)
  return tree.prune(thread_of(args[1]), args[2])
end)

-- The author's index of a comment that another service wrote.
projection('comment_author', function(id, comment, name)
  local at = redis.call('ZSCORE', key.post_comments_recent(id), comment)
  if at then return {'ZADD', key.user_comments(name), at, comment} end
  return {'ZREM', key.user_comments(name), comment}
end)

-- complete_comments: index the comments that another service added to the list, and drop those that it removed.
-- KEYS post, comments, recent   ARGV id, then comment, time, author ('' if unknown) of each in the list
command('complete_comments', function(keys, args)
  local post, comments, recent, id = keys[1], keys[2], keys[3], args[1]
  local author, listed, thread = redis.call('HGET', post, 'user_id'), {}, thread_of(id)
  if not author then return end
  for _, comment in ipairs(redis.call('LRANGE', comments, 0, MAX_COMPLETED - 1)) do listed[comment] = true end
  for i = 2, #args, 3 do
    local comment, at, name = unpack(args, i, i + 2)
    if listed[comment] and redis.call('ZADD', recent, 'NX', at, comment) == 1 then
      tree.add(thread, comment, '', at)
      if name ~= '' then
        emit_comment(comment, id, author, name, '')
        project('comment_author', id, comment, name)
      end
    end
  end
  local indexed = redis.call('ZRANGE', recent, 0, -1, 'WITHSCORES')
  for i = 1, #indexed, 2 do
    if not listed[indexed[i]] then
      redis.call('ZREM', recent, indexed[i])
      emit_comment_deleted(indexed[i], id, author)
      tree.remove(thread, indexed[i], indexed[i + 1])
    end
  end
end)

projection('comment_of', function(comment, name)
  local author, created = unpack(redis.call('HMGET', key.comment(comment), 'username', 'created_at'))
  if author == name then return {'ZADD', key.user_comments(name), finite(created, 0), comment} end
  return {'ZREM', key.user_comments(name), comment}
end)

-- drop_comment: delete a comment that its post no longer lists.   KEYS comment, edits   ARGV id
command('drop_comment', function(keys, args)
  local name = redis.call('HGET', keys[1], 'username')
  redis.call('DEL', keys[1], keys[2])
  if name then project('comment_of', args[1], name) end
end)
