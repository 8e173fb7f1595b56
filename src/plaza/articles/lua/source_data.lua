-- The keys of articles, and how their source data is read. The other files have the commands and projections.
--
-- article:<id>          hash   title, link, author, time, votes      \
-- upvoted:<id>          set    user:<username>                       | source data of the article
-- downvoted:<id>        set    user:<username>                       |
-- article:<id>:groups   set    group name                            /
-- article:<id>:comment* zset, hash, …   comments and their tree        source data of the article
-- article:              string the last id                           \ source data of the counter
-- article:link:<digest> string id, time and operation of the claim   /
-- group:<group>         set    article:<id>                          \ source data of the group, and
-- <order>:<group>       zset   built from <order>:, for a minute     / rankings built on demand
-- time: score: hot: best: top: controversial: groups: articles:leaving articles:<username>:*   projections

local function member_of(id) return 'article:' .. id end

-- Other services write articles too, so any field can be missing or odd.
-- A time in Unix seconds; nil if it is missing, not a number or not a date.
local function parse_seconds(time)
  local seconds = finite(time, -1)
  if seconds >= 0 and seconds <= MAX_TIME_SECONDS then return seconds end
  return nil
end

-- The `votes` of an article; the difference of the vote sets if the field is missing or not an integer that HINCRBY takes.
local function votes_of(votes, up, down)
  if votes and #votes <= 16 and (votes == '0' or votes:match('^-?[1-9]%d*$')) then return votes end
  return text(redis.call('SCARD', up) - redis.call('SCARD', down))
end

-- Returns the author, which can be '', the time in seconds, which can be nil, and `votes` as stored.
local function require_article(article)
  local author, time, votes = unpack(redis.call('HMGET', article, 'author', 'time', 'votes'))
  if not (author or time) and redis.call('EXISTS', article) == 0 then
    fail('not_found', 'This article does not exist.')
  end
  return author or '', parse_seconds(time), votes
end

-- `username` must be the author; '' is an admin, who may change any article.
local function require_author(author, username)
  if username ~= '' and author ~= 'user:' .. username then
    fail('forbidden', 'Only the author or an admin may do this.')
  end
end

-- A user found in both sets is an upvoter.
local function vote_of(up, down, voter)
  if redis.call('SISMEMBER', up, voter) == 1 then return 'up' end
  if redis.call('SISMEMBER', down, voter) == 1 then return 'down' end
  return 'none'
end

-- `author` is the field of the article, `user:<username>`; `origin` is '' or nil for none.
local function emit_article(type, id, author, origin)
  emit(type, id, {article = tonumber(id), author = author:sub(6)}, origin ~= '' and origin or nil)
end

local function emit_vote(id, author, username, direction, origin)
  local data = {article = tonumber(id), author = author:sub(6), username = username, direction = direction}
  emit('article.voted', id, data, origin ~= '' and origin or nil)
end
