-- Comments on articles, and replies to them. The owner is the article, also of the texts; `tree` has the replies.

local DELETE_COMMENTS = 100    -- comments that one step deletes with their article

-- Returns the keys of an article's comments, for `tree`.
local function discussion_of(id)
  return {
    all = key.article_comments(id),
    parents = key.article_comment_parents(id),
    stubs = key.article_comment_stubs(id),
    top = key.article_comments_top(id),
    replies = function(note) return key.article_comment_replies(id, note) end,
  }
end

-- comment_index: whether a comment is by this user, in the user's index.
projection('comment_index', function(id, note, username)
  local created = redis.call('ZSCORE', key.article_comments(id), note)
  local author = redis.call('HGET', key.article_comment(id, note), 'username')
  if created and author == username then return {'ZADD', key.user_article_comments(username), created, id .. '-' .. note} end
  return {'ZREM', key.user_article_comments(username), id .. '-' .. note}
end)

-- comment: add a comment, unless it exists.
-- KEYS article, comments, comment   ARGV id, note, username, content, now_ms, reply_to ('' for none), origin ('' for none)
-- Reply when it was written
command('comment', function(keys, args)
  local article, comments, comment = unpack(keys)
  local id, note, username, content, at, parent, origin = unpack(args)
  local author = require_article(article)
  local written = redis.call('ZSCORE', comments, note)
  if written then return written end
  if parent ~= '' and not redis.call('ZSCORE', comments, parent) then
    fail('invalid', 'No comment on this article has this id.', {field = 'reply_to'})
  end
  redis.call('ZADD', comments, at, note)
  redis.call('HSET', comment, 'username', username, 'content', content)
  tree.add(discussion_of(id), note, parent, at)
  local data = {article = tonumber(id), author = author:sub(6), comment = id .. '-' .. note, username = username}
  if parent ~= '' then data.reply_to = id .. '-' .. parent end
  emit('article.commented', id, data, origin ~= '' and origin or nil)
  project('comment_index', id, note, username)
  return at
end)

local function emit_comment_deleted(id, author, note, username)
  local data = {article = tonumber(id), author = author:sub(6), comment = id .. '-' .. note, username = username or nil}
  local parent = redis.call('HGET', key.article_comment_parents(id), note)
  if parent then data.reply_to = id .. '-' .. parent end
  emit('article.comment_deleted', id, data)
end

-- edit_comment: change the text of the caller's comment; the old one is kept.
-- KEYS article, comment, edits   ARGV id, note, caller, content, now_ms
command('edit_comment', function(keys, args)
  local article, comment, edits = unpack(keys)
  local id, note, who, content, at = unpack(args)
  local username = redis.call('HGET', comment, 'username')
  if not username then fail('not_found', 'No comment has this id.') end
  if username ~= who then fail('forbidden', 'Only its author can edit a comment.') end
  local author = redis.call('HGET', article, 'author')
  if tree.rewrite(comment, edits, content, at) and author then
    local data = {article = tonumber(id), author = author:sub(6), comment = id .. '-' .. note, username = username}
    emit('article.comment_edited', id, data)
  end
end)

-- delete_comment: a comment with replies becomes a stub. Its author, the article's author and admins may delete it.
-- KEYS article, comments, comment   ARGV id, note, caller ('' for an admin)   Reply the stub to prune next, or ''
command('delete_comment', function(keys, args)
  local article, comments, comment = unpack(keys)
  local id, note, who = unpack(args)
  local created, username = redis.call('ZSCORE', comments, note), redis.call('HGET', comment, 'username')
  if not created then fail('not_found', 'No comment has this id.') end
  local author = redis.call('HGET', article, 'author')
  if who ~= '' and who ~= username and 'user:' .. who ~= author then
    fail('forbidden', "Only its author, the article's author or an admin can delete a comment.")
  end
  redis.call('ZREM', comments, note)
  redis.call('DEL', comment, key.article_comment_edits(id, note))
  if username then project('comment_index', id, note, username) end
  if author then emit_comment_deleted(id, author, note, username) end
  return tree.remove(discussion_of(id), note, created)
end)

-- prune_comments: remove stubs without replies, from one of them upwards.   KEYS article   ARGV id, stub   Reply as above
command('prune_comments', function(keys, args)
  return tree.prune(discussion_of(args[1]), args[2])
end)

-- rename_comment: replace an author's name.   KEYS comment   ARGV id, note, old name, new name
command('rename_comment', function(keys, args)
  local id, note, old, new = unpack(args)
  if redis.call('HGET', keys[1], 'username') == old then redis.call('HSET', keys[1], 'username', new) end
  project('comment_index', id, note, old)
  project('comment_index', id, note, new)
end)

-- Deletes some comments of a deleted article. Returns how many are left.
local function delete_comments(id)
  local comments = key.article_comments(id)
  local notes = redis.call('ZRANGE', comments, 0, DELETE_COMMENTS - 1)
  for _, note in ipairs(notes) do
    local username = redis.call('HGET', key.article_comment(id, note), 'username')
    redis.call('ZREM', comments, note)
    redis.call('DEL', key.article_comment(id, note), key.article_comment_edits(id, note))
    if username then project('comment_index', id, note, username) end
  end
  return tree.purge(discussion_of(id), notes) + redis.call('ZCARD', comments)
end

-- repair_thread: a comment's place among the replies.
-- KEYS article   ARGV now_ms, id, note, the comment whose replies have it (or itself)
command('repair_thread', function(keys, args) tree.repair(discussion_of(args[2]), args[3], args[4]) end)

-- repair_note: a comment without its text is deleted, a text without its comment too; then its author's index.
-- KEYS article   ARGV now_ms, id, note, and a user whose index has it
command('repair_note', function(keys, args)
  local id, note, indexed = args[2], args[3], args[4]
  local comments, comment = key.article_comments(id), key.article_comment(id, note)
  local created, username = redis.call('ZSCORE', comments, note), redis.call('HGET', comment, 'username')
  if not (created and username) then
    redis.call('ZREM', comments, note)
    redis.call('DEL', comment, key.article_comment_edits(id, note))
    if created then tree.remove(discussion_of(id), note, created) end
  end
  if username then project('comment_index', id, note, username) end
  if indexed and indexed ~= username then project('comment_index', id, note, indexed) end
end)

-- repair_note_edits: delete the old texts of a missing comment.   KEYS article   ARGV now_ms, id, note
command('repair_note_edits', function(keys, args)
  local id, note = args[2], args[3]
  if redis.call('EXISTS', key.article_comment(id, note)) == 0 then redis.call('DEL', key.article_comment_edits(id, note)) end
end)
