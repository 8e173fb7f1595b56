-- Votes. The two vote sets are source data; `votes`, the rankings and the voter's index follow from them.

-- voter_index: a user's vote on an article, in the user's index.
projection('voter_index', function(id, username)
  local vote = vote_of(key.article_up(id), key.article_down(id), 'user:' .. username)
  if vote == 'none' then return {'ZREM', key.user_votes(username), member_of(id)} end
  return {'ZADD', key.user_votes(username), vote == 'up' and 1 or -1, member_of(id)}
end)

-- Writes `votes` from the sizes of the vote sets, and returns it.
local function count_votes(id, article, up, down)
  local votes = text(redis.call('SCARD', up) - redis.call('SCARD', down))
  redis.call('HSET', article, 'votes', votes)
  project('rankings', id)
  return votes
end

-- vote: set a user's vote to 'up', 'down' or 'none'.
-- KEYS article, up, down   ARGV id, username, vote, now, seconds that voting is open (0: always)
-- Reply {time, votes}
command('vote', function(keys, args)
  local article, up, down = unpack(keys)
  local id, username, vote, now_seconds, open_seconds = unpack(args)
  local _, time, votes = require_article(article)
  if open_seconds ~= '0' and tonumber(now_seconds) >= tonumber(time) + tonumber(open_seconds) then
    fail('voting_closed', 'Voting on this article is closed.')
  end
  local voter = 'user:' .. username
  local changes = redis.call(vote == 'up' and 'SADD' or 'SREM', up, voter)
  changes = changes + redis.call(vote == 'down' and 'SADD' or 'SREM', down, voter)
  if changes == 0 then return {time, votes} end
  project('voter_index', id, username)
  return {time, count_votes(id, article, up, down)}
end)
