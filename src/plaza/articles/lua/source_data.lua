-- Articles: the keys, and how their facts are read. The other files, one per noun, have the atomic writes.
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

local function member_of(id) return 'article:' .. id end

local function must_exist(article)
  local author, time, votes = unpack(redis.call('HMGET', article, 'author', 'time', 'votes'))
  if not author then fail('not_found', 'There is no such article.') end
  return author, time, votes
end

-- Who may change an article; '' is an admin.
local function must_be_author(author, username)
  if username ~= '' and author ~= 'user:' .. username then fail('forbidden', 'This is for the author or an admin.') end
end

-- Who is found in both sets is an upvoter.
local function vote_of(up, down, voter)
  if redis.call('SISMEMBER', up, voter) == 1 then return 'up' end
  if redis.call('SISMEMBER', down, voter) == 1 then return 'down' end
  return 'none'
end
