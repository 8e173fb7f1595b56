-- Articles: the atomic writes.
--
-- article:<id>          hash   title, link, author, time, votes      \
-- upvoted:<id>          set    user:<username>                       | facts of the article
-- downvoted:<id>        set    user:<username>                       |
-- article:<id>:groups   set    group name                            /
-- article:              string the last id                           \ facts of the counter
-- article:link:<digest> string id, time and operation that took it   /
-- group:<group>         set    article:<id>                          \ facts of the group, and
-- <order>:<group>       zset   cut from <order>:, for a minute       / lists that it may forget
-- time: score: hot: best: controversial: groups: articles:leaving articles:<username>:*   effects

local ORDERS = {'score', 'time', 'hot', 'best', 'controversial'}
local MOVING = {'score', 'hot', 'best', 'controversial'} -- with every vote
local VOTE_SECONDS = 432       -- 86,400 s a day / 200 votes: with 200 votes an article stays up for a day
local HOT_EPOCH = 1134028003   -- 8 December 2005; any fixed moment gives the same order
local HOT_SECONDS = 45000      -- ten times the votes are worth twelve and a half hours
local Z = 1.281551565545       -- 80 % confidence
local DAY = 86400
local ABANDONED_SECONDS = 10   -- far longer than a post takes from its id to its article
local GROUP_MS = 60000
local BUILDER_MS = 5000
local ENOUGH_MS = 1000         -- whoever is told that a list is there still has to read it
local SHED = 200               -- votes of each kind that one step removes

local function member_of(id) return 'article:' .. id end

local function hot(votes, time)
  local size = math.log10(math.max(math.abs(votes), 1))
  return (votes < 0 and -size or size) + (time - HOT_EPOCH) / HOT_SECONDS
end

local function best(ups, downs)
  local n = ups + downs
  if n == 0 then return 0 end
  local share, zz = ups / n, Z * Z
  return (share + zz / (2 * n) - Z * math.sqrt((share * (1 - share) + zz / (4 * n)) / n)) / (1 + zz / n)
end

local function controversial(ups, downs)
  if ups == 0 or downs == 0 then return 0 end
  return (ups + downs) ^ (math.min(ups, downs) / math.max(ups, downs))
end

-- What an article scores in each order, or nil if it is gone.
local function scores_of(id)
  local time, votes = unpack(redis.call('HMGET', key.article(id), 'time', 'votes'))
  if not time then return nil end
  local ups, downs = redis.call('SCARD', key.article_up(id)), redis.call('SCARD', key.article_down(id))
  local posted = tonumber(time)
  return {
    time = time,
    score = posted + VOTE_SECONDS * tonumber(votes),
    hot = hot(tonumber(votes), posted),
    best = best(ups, downs),
    controversial = controversial(ups, downs),
  }
end

local function ranking(order) return key['articles_by_' .. order]() end

-- ranked: where an article stands in every order that votes move.
recipe('ranked', function(id)
  local scores, commands = scores_of(id), {}
  for _, order in ipairs(MOVING) do
    if scores then
      commands[#commands + 1] = {'ZADD', ranking(order), scores[order], member_of(id)}
    else
      commands[#commands + 1] = {'ZREM', ranking(order), member_of(id)}
    end
  end
  return commands
end)

-- dated: when an article was posted.
recipe('dated', function(id)
  local time = redis.call('HGET', key.article(id), 'time')
  if not time then return {'ZREM', key.articles_by_time(), member_of(id)} end
  return {'ZADD', key.articles_by_time(), time, member_of(id)}
end)

-- posted: whether an article is this person's.
recipe('posted', function(id, username)
  local author, time = unpack(redis.call('HMGET', key.article(id), 'author', 'time'))
  if author ~= 'user:' .. username then return {'ZREM', key.person_articles(username), member_of(id)} end
  return {'ZADD', key.person_articles(username), time, member_of(id)}
end)

-- Who is found in both sets is an upvoter.
local function vote_of(up, down, voter)
  if redis.call('SISMEMBER', up, voter) == 1 then return 'up' end
  if redis.call('SISMEMBER', down, voter) == 1 then return 'down' end
  return 'none'
end

-- cast: what a person voted on an article, on the person's own list.
recipe('cast', function(id, username)
  local vote = vote_of(key.article_up(id), key.article_down(id), 'user:' .. username)
  if vote == 'none' then return {'ZREM', key.person_votes(username), member_of(id)} end
  return {'ZADD', key.person_votes(username), vote == 'up' and 1 or -1, member_of(id)}
end)

local function keys_of_group(group)
  local names = {key.group(group)}
  for _, order in ipairs(ORDERS) do
    names[#names + 1] = key['group_by_' .. order](group)
    names[#names + 1] = key.group_building(order, group)
    names[#names + 1] = key.group_builder(order, group)
  end
  return names
end

-- grouped: whether a group has an article. Its scores go along, for lists of the group that exist just now.
recipe('grouped', function(id, group)
  local scores = redis.call('SISMEMBER', key.article_groups(id), group) == 1 and scores_of(id)
  local args = {group, member_of(id)}
  if not scores then return perform('expel', keys_of_group(group), args) end
  for _, order in ipairs(ORDERS) do args[#args + 1] = scores[order] end
  return perform('admit', keys_of_group(group), args)
end)

-- sized: how many articles a group has, in the list of groups.
recipe('sized', function(group)
  local size = redis.call('SCARD', key.group(group))
  if size == 0 then return {'ZREM', key.groups(), group} end
  return {'ZADD', key.groups(), size, group}
end)

-- admit: a group gets an article.
-- KEYS group, then per order: list, list being built, builder   ARGV group, member, then its score per order
verb('admit', function(keys, args)
  for i = 1, #ORDERS do
    local list, building, builder = unpack(keys, 3 * i - 1, 3 * i + 1)
    local score = args[2 + i]
    -- A list that is not there must not begin with this one: it would pass for the whole.
    if redis.call('EXISTS', list) == 1 then redis.call('ZADD', list, score, args[2]) end
    -- One being built may: its builder may have gone past this one's place already, before it put in the first.
    if redis.call('EXISTS', builder) == 1 then
      redis.call('ZADD', building, score, args[2])
      redis.call('PEXPIRE', building, GROUP_MS)
    end
  end
  if redis.call('SADD', keys[1], args[2]) == 1 then effect('sized', args[1]) end
end)

-- expel: a group loses an article.   KEYS as of admit   ARGV group, member
verb('expel', function(keys, args)
  for i = 1, #ORDERS do
    redis.call('ZREM', keys[3 * i - 1], args[2])
    redis.call('ZREM', keys[3 * i], args[2])
  end
  if redis.call('SREM', keys[1], args[2]) == 1 then effect('sized', args[1]) end
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
recipe('unlinked', function(id, link)
  local digest = link_digest(link)
  if not digest or redis.call('EXISTS', key.article(id)) == 1 then return nil end
  return perform('release', {key.article_link(key.articles_last(), digest)}, {id})
end)

-- release: a link may be posted again.   KEYS link   ARGV id, as long as the link is this one's
verb('release', function(keys, args)
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
  effect('dated', id)
  effect('posted', id, username)
  effect('ranked', id)
  effect('cast', id, username)
  for i = 6, #args do
    redis.call('SADD', keys[4], args[i])
    effect('grouped', id, args[i])
  end
  return time
end

if CLUSTERED then
  -- claim: an id and a link for a new article.
  -- KEYS counter, link   ARGV time, operation, vanished id or ''   Reply id
  verb('claim', function(keys, args)
    return claim(keys[1], keys[2], unpack(args))
  end)

  -- create: an article under an id that was taken.
  -- KEYS article, up, down, groups   ARGV id, title, link, username, time, group, …   Reply when it was posted
  verb('create', create)
else
  -- post: claim and create in one step. An article's keys follow from its id, which nobody knows before; that they are
  -- not declared is why a cluster does it in two steps.
  -- KEYS counter, link   ARGV operation, title, link, username, time, group, …   Reply {id, when it was posted}
  verb('post', function(keys, args)
    local id = claim(keys[1], keys[2], args[5], args[1], '')
    args[1] = id
    local facts = {key.article(id), key.article_up(id), key.article_down(id), key.article_groups(id)}
    return {id, create(facts, args)}
  end)
end

local function must_exist(article)
  local author, time, votes = unpack(redis.call('HMGET', article, 'author', 'time', 'votes'))
  if not author then fail('not_found', 'There is no such article.') end
  return author, time, votes
end

-- Who may change an article; '' is an admin.
local function must_be_author(author, username)
  if username ~= '' and author ~= 'user:' .. username then fail('forbidden', 'This is for the author or an admin.') end
end

-- The votes, from the sets.
local function count(id, article, up, down)
  local votes = text(redis.call('SCARD', up) - redis.call('SCARD', down))
  redis.call('HSET', article, 'votes', votes)
  effect('ranked', id)
  return votes
end

-- vote: a person's vote is up, down or none from now on.
-- KEYS article, up, down   ARGV id, username, vote, now, seconds that voting is open (0: for ever)
-- Reply {time, votes}
verb('vote', function(keys, args)
  local article, up, down = unpack(keys)
  local id, username, vote, at, open = unpack(args)
  local _, time, votes = must_exist(article)
  if open ~= '0' and tonumber(at) >= tonumber(time) + tonumber(open) then
    fail('voting_closed', 'Voting on this article has ended.')
  end
  local voter = 'user:' .. username
  local changes = redis.call(vote == 'up' and 'SADD' or 'SREM', up, voter)
  changes = changes + redis.call(vote == 'down' and 'SADD' or 'SREM', down, voter)
  if changes == 0 then return {time, votes} end
  effect('cast', id, username)
  return {time, count(id, article, up, down)}
end)

-- rename: an author or voter has another name from now on. Where the new name has voted already, that vote stands.
-- KEYS article, up, down   ARGV id, old name, new name
verb('rename', function(keys, args)
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
    effect('posted', id, username)
    effect('cast', id, username)
  end
end)

-- group: an article is in a group from now on, or no longer.
-- KEYS article, groups   ARGV id, group, 'in' or 'out', username ('' for an admin), most groups
-- Reply its groups
verb('group', function(keys, args)
  local id, group, where, username, most = unpack(args)
  must_be_author(must_exist(keys[1]), username)
  local there = redis.call('SISMEMBER', keys[2], group) == 1
  if where == 'in' and not there then
    if redis.call('SCARD', keys[2]) >= tonumber(most) then
      fail('too_many_groups', 'An article is in ' .. most .. ' groups at most.')
    end
    redis.call('SADD', keys[2], group)
    effect('grouped', id, group)
  elseif where == 'out' and there then
    redis.call('SREM', keys[2], group)
    effect('grouped', id, group)
  end
  return redis.call('SMEMBERS', keys[2])
end)

-- leaving: a deleted article whose votes are not all gone yet, so that a worker finds it.
recipe('leaving', function(id)
  local left = redis.call('EXISTS', key.article_up(id), key.article_down(id))
  if left == 0 or redis.call('EXISTS', key.article(id)) == 1 then return {'SREM', key.articles_leaving(), id} end
  return {'SADD', key.articles_leaving(), id}
end)

-- Removes some of a deleted article's votes, also from the lists of those who cast them. Returns how many are left.
local function shed(id, up, down)
  effect('leaving', id)
  for _, votes in ipairs({up, down}) do
    for _, voter in ipairs(redis.call('SPOP', votes, SHED)) do effect('cast', id, voter:sub(6)) end
  end
  return redis.call('SCARD', up) + redis.call('SCARD', down)
end

-- delete: an article goes, with every trace; what many voters left is shed in further steps.
-- KEYS article, up, down, groups   ARGV id, username ('' for an admin)   Reply how many votes are still to be shed
verb('delete', function(keys, args)
  local article, up, down, in_groups = unpack(keys)
  local id = args[1]
  local author = must_exist(article)
  must_be_author(author, args[2])
  local link = redis.call('HGET', article, 'link')
  local groups = redis.call('SMEMBERS', in_groups)
  redis.call('DEL', article, in_groups)
  effect('dated', id)
  effect('posted', id, author:sub(6))
  effect('ranked', id)
  if link then effect('unlinked', id, link) end
  for _, group in ipairs(groups) do effect('grouped', id, group) end
  return shed(id, up, down)
end)

-- shed: goes on with the votes of a deleted article.   KEYS article, up, down   ARGV id   Reply how many are left
verb('shed', function(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return shed(args[1], keys[2], keys[3]) end
  effect('leaving', args[1])
  return 0
end)

-- counted: the counter is not behind an article that is there.
recipe('counted', function(id)
  if redis.call('EXISTS', key.article(id)) == 0 then return nil end
  return perform('at_least', {key.articles_last()}, {id})
end)

-- at_least: an id was given.   KEYS counter   ARGV id
verb('at_least', function(keys, args)
  if tonumber(redis.call('GET', keys[1]) or 0) < tonumber(args[1]) then redis.call('SET', keys[1], args[1]) end
end)

-- Everything that follows from an article's facts is said once more, whatever another writer has made of it.
-- Returns 1, or 0 if there is no such article.
local function mend(id)
  local article, up, down, in_groups = key.article(id), key.article_up(id), key.article_down(id), key.article_groups(id)
  local author = redis.call('HGET', article, 'author')
  local groups = redis.call('SMEMBERS', in_groups)
  if author then
    for _, voter in ipairs(redis.call('SINTER', up, down)) do -- an upvoter
      redis.call('SREM', down, voter)
      effect('cast', id, voter:sub(6))
    end
    count(id, article, up, down)
    effect('posted', id, author:sub(6))
  else
    redis.call('DEL', article, in_groups)
    effect('ranked', id)
    shed(id, up, down)
  end
  effect('dated', id)
  effect('counted', id)
  for _, group in ipairs(groups) do effect('grouped', id, group) end
  return author and 1 or 0
end

-- mend   KEYS article, up, down, groups   ARGV id   Reply as above
verb('mend', function(keys, args)
  return mend(args[1])
end)

-- What the audit calls, for one article or one of its relations.   KEYS article   ARGV now_ms, id, and whom or what
verb('mend_article', function(keys, args)
  return mend(args[2])
end)

verb('mend_vote', function(keys, args)
  local article, id, voter = keys[1], args[2], 'user:' .. args[3]
  local up, down = key.article_up(id), key.article_down(id)
  if redis.call('SISMEMBER', up, voter) == 1 then redis.call('SREM', down, voter) end
  effect('cast', id, args[3])
  if redis.call('EXISTS', article) == 1 then count(id, article, up, down) end
end)

verb('mend_group', function(keys, args) effect('grouped', args[2], args[3]) end)
verb('mend_posted', function(keys, args) effect('posted', args[2], args[3]) end)

-- mend_sized: how many articles a group has.   KEYS group   ARGV now_ms, group
verb('mend_sized', function(keys, args) effect('sized', args[2]) end)

-- Puts articles in a list that is being built.
local function put(list, members, scores)
  local found = {}
  for i, member in ipairs(members) do
    if scores[i] then
      found[#found + 1] = scores[i]
      found[#found + 1] = member
    end
  end
  if #found > 0 then redis.call('ZADD', list, unpack(found)) end
end

-- begin: someone wants a group's list. On one server a small group is cut at once.
-- KEYS list, list being built, builder, group, on one server the ranking   ARGV token, how many are cut at once
-- Reply 'there' (also if the group is empty), 'busy' while someone else builds it, or 'yours' to build
verb('begin', function(keys, args)
  local list, building, builder, group, whole = unpack(keys)
  if redis.call('PTTL', list) > ENOUGH_MS then return 'there' end
  local size = redis.call('SCARD', group)
  if size == 0 then return 'there' end
  if whole and size <= tonumber(args[2]) then
    local members = redis.call('SMEMBERS', group)
    redis.call('UNLINK', list) -- it may have been much longer
    put(list, members, redis.call('ZMSCORE', whole, unpack(members)))
    redis.call('PEXPIRE', list, GROUP_MS)
    return 'there'
  end
  if not redis.call('SET', builder, args[1], 'NX', 'PX', BUILDER_MS) then return 'busy' end
  redis.call('UNLINK', building) -- of a builder that stopped
  return 'yours'
end)

local function keep(building, builder)
  redis.call('PEXPIRE', building, GROUP_MS)
  redis.call('PEXPIRE', builder, BUILDER_MS)
end

if CLUSTERED then
  -- fold: some more of a list being built, as far as they are still in the group.
  -- KEYS list being built, builder, group   ARGV token, then member, score, …
  -- Reply 1, or 0 if another builds it by now
  verb('fold', function(keys, args)
    local building, builder, group = unpack(keys)
    if redis.call('GET', builder) ~= args[1] then return 0 end
    local members, scores = {}, {}
    for i = 2, #args, 2 do members[#members + 1] = args[i] end
    for i, is_there in ipairs(redis.call('SMISMEMBER', group, unpack(members))) do
      scores[i] = is_there == 1 and args[2 * i + 1]
    end
    put(building, members, scores)
    keep(building, builder)
    return 1
  end)
else
  -- step: some more of a list being built, where all keys are on this server.
  -- KEYS list being built, builder, group, ranking   ARGV token, cursor, count
  -- Reply the next cursor, or nil if another builds it by now
  verb('step', function(keys, args)
    local building, builder, group, whole = unpack(keys)
    if redis.call('GET', builder) ~= args[1] then return nil end
    local cursor, members = unpack(redis.call('SSCAN', group, args[2], 'COUNT', args[3]))
    if #members > 0 then put(building, members, redis.call('ZMSCORE', whole, unpack(members))) end
    keep(building, builder)
    return cursor
  end)
end

-- publish: a list is built.
-- KEYS list, list being built, builder   ARGV token, how long it lives   Reply 1, or 0 if another builds it by now
verb('publish', function(keys, args)
  local list, building, builder = unpack(keys)
  if redis.call('GET', builder) ~= args[1] then return 0 end
  redis.call('DEL', builder)
  redis.call('UNLINK', list)
  if redis.call('EXISTS', building) == 1 then
    redis.call('RENAME', building, list)
    redis.call('PEXPIRE', list, args[2])
  end
  return 1
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
  question('read', function(keys, args)
    return read(args[1], unpack(keys))
  end)
else
  -- read: articles.   KEYS article, …   ARGV viewer's username or '', then the ids   Reply as above for each
  question('read', function(keys, args)
    local rows = {}
    for i, article in ipairs(keys) do
      local id = args[i + 1]
      rows[i] = read(args[1], article, key.article_groups(id), key.article_up(id), key.article_down(id))
    end
    return rows
  end)
end
