-- Articles: claim an id and a link, write, rename, read and delete.

local ABANDONED_SECONDS = 10   -- far longer than a post takes between its id and its article
local DELETE_VOTES = 200       -- votes of each kind that one step deletes
local MAX_LOST_IDS = 1000      -- far more than are given while a replica is behind

-- author_index: whether an article is by this user, in the user's index.
projection('author_index', function(id, username)
  local state = state_of(id)
  if state.author ~= 'user:' .. username then return {'ZREM', key.user_articles(username), member_of(id)} end
  return {'ZADD', key.user_articles(username), state.time or 0, member_of(id)}
end)

-- The digest of a link's normal form, which identifies duplicates. `model.py` has lower-cased the host and dropped a
-- default port; here the fragment is dropped and an empty path becomes `/`. Another service's link may be anything: a
-- link without a scheme is never claimed and has no digest (nil).
local function link_digest(link)
  local site, rest = link:match('^([^#]*)'):match('^(%a+://[^/?]*)(.*)$')
  if not site then return nil end
  if rest:sub(1, 1) ~= '/' then rest = '/' .. rest end
  return redis.sha1hex(site .. rest)
end

-- link_release: the link of a deleted article can be posted again.
projection('link_release', function(id, link)
  local digest = link_digest(link)
  if not digest or redis.call('EXISTS', key.article(id)) == 1 then return nil end
  return perform('release_link', {key.article_link(key.articles_last(), digest)}, {id})
end)

-- release_link: remove a claim if it belongs to this article.   KEYS link   ARGV id
command('release_link', function(keys, args)
  local claim = redis.call('GET', keys[1])
  if claim and claim:match('^%d+') == args[1] then redis.call('DEL', keys[1]) end
end)

local counted_as -- cluster: the replication id under which this node gave its last id

-- Cluster: returns how many ids to leave out. A node that was promoted since may lack the last ones that were given. Their
-- articles are on other nodes, or were lost or deleted since: in any case no other article must get their ids.
local function lost_ids(counter)
  local replication_id = redis.call('INFO', 'replication'):match('master_replid:(%x+)')
  if replication_id == counted_as then return 0 end
  counted_as = replication_id
  return redis.call('EXISTS', counter) == 1 and MAX_LOST_IDS or 0
end

-- Returns a new id, or fails if the counter, which other services write too, has no usable value.
local function next_id(counter)
  local id = redis.pcall('INCRBY', counter, 1 + (CLUSTERED and lost_ids(counter) or 0))
  if type(id) ~= 'number' or id < 1 or (not CLUSTERED and redis.call('EXISTS', key.article(id)) == 1) then
    fail('bad_counter', 'The article counter has no usable value.')
  end
  return text(id)
end

-- The id for a link: a new id, or the same one again for the same operation. Fails if the link was posted within a day.
-- `abandoned` is a claimed id for which the caller found no article.
local function claim(counter, link, time, operation, abandoned)
  local id, claimed_at, claimed_by = (redis.call('GET', link) or ''):match('^(%d+) (%S+) (%S*)$')
  if id and tonumber(time) < tonumber(claimed_at) + LINK_SECONDS then
    if claimed_by == operation then return id end
    if id ~= abandoned or tonumber(time) < tonumber(claimed_at) + ABANDONED_SECONDS then
      fail('duplicate_link', 'This link was posted within a day. See the article with this id.', {id = tonumber(id)})
    end
  end
  id = next_id(counter)
  redis.call('SET', link, id .. ' ' .. time .. ' ' .. operation, 'EX', LINK_SECONDS)
  return id
end

-- Returns when an existing article was posted, if it is the one that is being created again. On a cluster the counter's
-- node can lose its last ids in a failover and give them again: then it is another article, and the id is refused.
local function created_before(article, title, link, username)
  local known_title, known_link, author, time = unpack(redis.call('HMGET', article, 'title', 'link', 'author', 'time'))
  if CLUSTERED and (author ~= 'user:' .. username or known_link ~= link or known_title ~= title) then
    fail('bad_counter', 'The article counter has no usable value.')
  end
  return time or ''
end

-- Adds an article that has only its author's vote to every list, on one server: at once what the projections would do.
local function list_new_article(id, username, posted, groups)
  local scores, member = scores_from(posted, 1, 1, 0), member_of(id)
  rank(id, ORDERS, scores)
  redis.call('ZADD', key.user_articles(username), posted, member)
  redis.call('ZADD', key.user_votes(username), 1, member)
  for _, group in ipairs(groups) do
    local args = {group, member}
    for i = 1, #ORDERS do args[i + 2] = text(scores[ORDERS[i]] or '') end
    commands_by_name.add_to_group(keys_of_group(group), args)
  end
end

-- Writes an article with its author's vote, unless it exists already. Returns when it was posted. `is_new`: it has just got
-- its id, on one server.
-- keys article, up, down, groups   args id, title, link, username, time, origin ('' for none), group, …
local function create(keys, args, is_new)
  local id, title, link, username, time, origin = unpack(args)
  if redis.call('EXISTS', keys[1]) == 1 then return created_before(keys[1], title, link, username) end
  redis.call('HSET', keys[1], 'title', title, 'link', link, 'author', 'user:' .. username, 'time', time, 'votes', 1)
  redis.call('SADD', keys[2], 'user:' .. username)
  emit_article('article.posted', id, 'user:' .. username, origin)
  local groups, posted = {unpack(args, 7)}, is_new and parse_seconds(time)
  for _, group in ipairs(groups) do redis.call('SADD', keys[4], group) end
  if posted then
    list_new_article(id, username, posted, groups)
    return time
  end
  project('time_ranking', id)
  project('author_index', id, username)
  project('rankings', id)
  project('voter_index', id, username)
  for _, group in ipairs(groups) do project('group_member', id, group) end
  return time
end

-- create: write an article under an id that was claimed, or that an import gives.
-- KEYS article, up, down, groups   ARGV id, title, link, username, time, origin ('' for none), group, …
-- Reply when it was posted
command('create', function(keys, args) return create(keys, args) end)

if CLUSTERED then
  -- claim: take an id and claim a link for a new article.
  -- KEYS counter, link   ARGV time, operation, abandoned id or ''   Reply id
  command('claim', function(keys, args)
    return claim(keys[1], keys[2], unpack(args))
  end)
else
  -- post: claim and create in one step. The article's keys depend on the new id, so they cannot be declared in KEYS;
  -- that is why a cluster needs two steps.
  -- KEYS counter, link   ARGV operation, title, link, username, time, origin ('' for none), group, …
  -- Reply {id, when it was posted}
  command('post', function(keys, args)
    local id = claim(keys[1], keys[2], args[5], args[1], '')
    args[1] = id
    local article_keys = {key.article(id), key.article_up(id), key.article_down(id), key.article_groups(id)}
    return {id, create(article_keys, args, true)}
  end)
end

-- rename: replace an author's or voter's name. If the new name has voted already, its vote stays.
-- KEYS article, up, down   ARGV id, old name, new name
command('rename', function(keys, args)
  local article, up, down = unpack(keys)
  local id, old, new = unpack(args)
  local author, _, votes = require_article(article)
  if author == 'user:' .. old then redis.call('HSET', article, 'author', 'user:' .. new) end
  local vote = vote_of(up, down, 'user:' .. old)
  if vote ~= 'none' then
    redis.call('SREM', up, 'user:' .. old)
    redis.call('SREM', down, 'user:' .. old)
    emit_vote(id, author, old, 'none', 'rename')
    if vote_of(up, down, 'user:' .. new) == 'none' then
      redis.call('SADD', vote == 'up' and up or down, 'user:' .. new)
      emit_vote(id, author, new, vote, 'rename')
    else
      add_votes(id, article, up, down, votes, -VALUES[vote])
    end
  end
  for _, username in ipairs({old, new}) do
    project('author_index', id, username)
    project('voter_index', id, username)
  end
end)

-- deletion_queue: whether a deleted article still has votes or comments, so that a worker finds it.
projection('deletion_queue', function(id)
  local left = redis.call('EXISTS', key.article_up(id), key.article_down(id), key.article_comments(id),
    key.article_comment_stubs(id))
  if left == 0 or redis.call('EXISTS', key.article(id)) == 1 then return {'SREM', key.articles_being_deleted(), id} end
  return {'SADD', key.articles_being_deleted(), id}
end)

-- Deletes some votes and comments of a deleted article, and their entries in the users' indexes. Returns how many are left.
local function delete_rest(id, up, down)
  project('deletion_queue', id)
  for _, votes in ipairs({up, down}) do
    for _, voter in ipairs(redis.call('SPOP', votes, DELETE_VOTES)) do project('voter_index', id, voter:sub(6)) end
  end
  return delete_comments(id) + redis.call('SCARD', up) + redis.call('SCARD', down)
end

-- delete: delete an article and everything derived from it. Many votes or comments need further steps of delete_rest.
-- KEYS article, up, down, groups   ARGV id, username ('' for an admin)   Reply how many are left
command('delete', function(keys, args)
  local article, up, down, in_groups = unpack(keys)
  local id = args[1]
  local author = require_article(article)
  require_author(author, args[2])
  local link = redis.call('HGET', article, 'link')
  local groups = redis.call('SMEMBERS', in_groups)
  redis.call('DEL', article, in_groups)
  emit_article('article.deleted', id, author)
  project('time_ranking', id)
  project('author_index', id, author:sub(6))
  project('rankings', id)
  if link then project('link_release', id, link) end
  for _, group in ipairs(groups) do project('group_member', id, group) end
  return delete_rest(id, up, down)
end)

-- delete_rest: delete more votes and comments of a deleted article.
-- KEYS article, up, down   ARGV id   Reply how many are left
command('delete_rest', function(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return delete_rest(args[1], keys[2], keys[3]) end
  project('deletion_queue', args[1])
  return 0
end)

-- An article without a viewer's vote, or false:
-- {title, link, author, time, votes, groups joined by line breaks, number of comments}
local function read(article, in_groups, up, down, comments)
  local row = redis.call('HMGET', article, 'title', 'link', 'author', 'time', 'votes')
  if not (row[1] and row[2] and row[3] and row[4]) then
    if not row[1] and redis.call('EXISTS', article) == 0 then return false end
    for i = 1, 4 do row[i] = row[i] or '' end
  end
  row[5] = votes_of(row[5], up, down)
  row[6] = table.concat(redis.call('SMEMBERS', in_groups), '\n')
  row[7] = redis.call('ZCARD', comments)
  return row
end

if CLUSTERED then
  -- read: one article.   KEYS article, groups, up, down, comments   ARGV viewer's username or ''
  -- Reply as above, then the viewer's vote
  query('read', function(keys, args)
    local row = read(unpack(keys))
    if row then row[8] = args[1] ~= '' and vote_of(keys[3], keys[4], 'user:' .. args[1]) or 'none' end
    return row
  end)
else
  -- read: articles.   KEYS article, …   ARGV the ids   Reply as above for each
  query('read', function(keys, args)
    local rows = {}
    for i, article in ipairs(keys) do
      local id = args[i]
      rows[i] = read(article, key.article_groups(id), key.article_up(id), key.article_down(id),
        key.article_comments(id))
    end
    return rows
  end)

  -- votes: a viewer's votes on articles.   ARGV username, id, …   Reply {'up', 'down' or 'none', …}
  query('votes', function(_, args)
    local votes, voter = {}, 'user:' .. args[1]
    for i = 2, #args do votes[i - 1] = vote_of(key.article_up(args[i]), key.article_down(args[i]), voter) end
    return votes
  end)
end
