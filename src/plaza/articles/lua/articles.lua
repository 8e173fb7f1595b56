-- An article's life: its id and link are claimed, it is written, renamed, read and deleted.

local DAY = 86400
local ABANDONED_SECONDS = 10   -- far longer than a post takes from its id to its article
local SHED = 200               -- votes of each kind that one step removes

-- posted: whether an article is this person's.
projection('posted', function(id, username)
  local author, time = unpack(redis.call('HMGET', key.article(id), 'author', 'time'))
  if author ~= 'user:' .. username then return {'ZREM', key.person_articles(username), member_of(id)} end
  return {'ZADD', key.person_articles(username), time, member_of(id)}
end)

-- The normal form of a link, by which duplicates are known. `model.py` has lower-cased the host and dropped a default
-- port; the fragment is the browser's own business, and no path is the path `/`. Another writer's link may be anything:
-- one without a scheme was never claimed, and has no digest.
local function link_digest(link)
  local place, rest = link:match('^([^#]*)'):match('^(%a+://[^/?]*)(.*)$')
  if not place then return nil end
  if rest:sub(1, 1) ~= '/' then rest = '/' .. rest end
  return redis.sha1hex(place .. rest)
end

-- unlinked: a deleted article no longer stands in the way of its link.
projection('unlinked', function(id, link)
  local digest = link_digest(link)
  if not digest or redis.call('EXISTS', key.article(id)) == 1 then return nil end
  return perform('release', {key.article_link(key.articles_last(), digest)}, {id})
end)

-- release: a link may be posted again.   KEYS link   ARGV id, as long as the link is this one's
command('release', function(keys, args)
  local taken = redis.call('GET', keys[1])
  if taken and taken:match('^%d+') == args[1] then redis.call('DEL', keys[1]) end
end)

-- The id for a link: a new one, or the same again for the same operation. Fails if the link was posted within a day.
-- `vanished` is an id that its taker never made an article of, as the caller has seen.
local function claim(counter, link, time, operation, vanished)
  local id, since, by = (redis.call('GET', link) or ''):match('^(%d+) (%S+) (%S*)$')
  if id and tonumber(time) < tonumber(since) + DAY then
    if by == operation then return id end
    if id ~= vanished or tonumber(time) < tonumber(since) + ABANDONED_SECONDS then
      fail('duplicate_link', 'This link was posted within a day.', {id = tonumber(id)})
    end
  end
  id = text(redis.call('INCR', counter))
  redis.call('SET', link, id .. ' ' .. time .. ' ' .. operation, 'EX', DAY)
  return id
end

-- Writes an article with its author's vote, unless it is there already. Returns when it was posted.
-- keys article, up, down, groups   args id, title, link, username, time, group, …
local function create(keys, args)
  local id, title, link, username, time = unpack(args)
  local before = redis.call('HGET', keys[1], 'time')
  if before then return before end
  redis.call('HSET', keys[1], 'title', title, 'link', link, 'author', 'user:' .. username, 'time', time, 'votes', 1)
  redis.call('SADD', keys[2], 'user:' .. username)
  project('dated', id)
  project('posted', id, username)
  project('ranked', id)
  project('cast', id, username)
  for i = 6, #args do
    redis.call('SADD', keys[4], args[i])
    project('grouped', id, args[i])
  end
  return time
end

if CLUSTERED then
  -- claim: an id and a link for a new article.
  -- KEYS counter, link   ARGV time, operation, vanished id or ''   Reply id
  command('claim', function(keys, args)
    return claim(keys[1], keys[2], unpack(args))
  end)

  -- create: an article under an id that was taken.
  -- KEYS article, up, down, groups   ARGV id, title, link, username, time, group, …   Reply when it was posted
  command('create', create)
else
  -- post: claim and create in one step. An article's keys follow from its id, which nobody knows before; that they are
  -- not declared is why a cluster does it in two steps.
  -- KEYS counter, link   ARGV operation, title, link, username, time, group, …   Reply {id, when it was posted}
  command('post', function(keys, args)
    local id = claim(keys[1], keys[2], args[5], args[1], '')
    args[1] = id
    local facts = {key.article(id), key.article_up(id), key.article_down(id), key.article_groups(id)}
    return {id, create(facts, args)}
  end)
end

-- rename: an author or voter has another name from now on. Where the new name has voted already, that vote stands.
-- KEYS article, up, down   ARGV id, old name, new name
command('rename', function(keys, args)
  local article, up, down = unpack(keys)
  local id, old, new = unpack(args)
  if must_exist(article) == 'user:' .. old then redis.call('HSET', article, 'author', 'user:' .. new) end
  local vote = vote_of(up, down, 'user:' .. old)
  if vote ~= 'none' then
    redis.call('SREM', up, 'user:' .. old)
    redis.call('SREM', down, 'user:' .. old)
    if vote_of(up, down, 'user:' .. new) == 'none' then
      redis.call('SADD', vote == 'up' and up or down, 'user:' .. new)
    end
    count(id, article, up, down)
  end
  for _, username in ipairs({old, new}) do
    project('posted', id, username)
    project('cast', id, username)
  end
end)

-- leaving: a deleted article whose votes are not all gone yet, so that a worker finds it.
projection('leaving', function(id)
  local left = redis.call('EXISTS', key.article_up(id), key.article_down(id))
  if left == 0 or redis.call('EXISTS', key.article(id)) == 1 then return {'SREM', key.articles_leaving(), id} end
  return {'SADD', key.articles_leaving(), id}
end)

-- Removes some of a deleted article's votes, also from the lists of those who cast them. Returns how many are left.
local function shed(id, up, down)
  project('leaving', id)
  for _, votes in ipairs({up, down}) do
    for _, voter in ipairs(redis.call('SPOP', votes, SHED)) do project('cast', id, voter:sub(6)) end
  end
  return redis.call('SCARD', up) + redis.call('SCARD', down)
end

-- delete: an article goes, with every trace; what many voters left is shed in further steps.
-- KEYS article, up, down, groups   ARGV id, username ('' for an admin)   Reply how many votes are still to be shed
command('delete', function(keys, args)
  local article, up, down, in_groups = unpack(keys)
  local id = args[1]
  local author = must_exist(article)
  must_be_author(author, args[2])
  local link = redis.call('HGET', article, 'link')
  local groups = redis.call('SMEMBERS', in_groups)
  redis.call('DEL', article, in_groups)
  project('dated', id)
  project('posted', id, author:sub(6))
  project('ranked', id)
  if link then project('unlinked', id, link) end
  for _, group in ipairs(groups) do project('grouped', id, group) end
  return shed(id, up, down)
end)

-- shed: goes on with the votes of a deleted article.   KEYS article, up, down   ARGV id   Reply how many are left
command('shed', function(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return shed(args[1], keys[2], keys[3]) end
  project('leaving', args[1])
  return 0
end)

-- An article as one viewer sees it, or nil:
-- {title, link, author, time, votes, groups joined by commas, viewer's vote}
local function read(viewer, article, in_groups, up, down)
  local row = redis.call('HMGET', article, 'title', 'link', 'author', 'time', 'votes')
  if not row[1] then return false end
  row[6] = table.concat(redis.call('SMEMBERS', in_groups), ',')
  row[7] = viewer ~= '' and vote_of(up, down, 'user:' .. viewer) or 'none'
  return row
end

if CLUSTERED then
  -- read: an article.   KEYS article, groups, up, down   ARGV viewer's username or ''   Reply as above
  query('read', function(keys, args)
    return read(args[1], unpack(keys))
  end)
else
  -- read: articles.   KEYS article, …   ARGV viewer's username or '', then the ids   Reply as above for each
  query('read', function(keys, args)
    local rows = {}
    for i, article in ipairs(keys) do
      local id = args[i + 1]
      rows[i] = read(args[1], article, key.article_groups(id), key.article_up(id), key.article_down(id))
    end
    return rows
  end)
end
