-- Who voted how. The two sets are the facts; `votes`, the orders and a voter's own list follow from them.

-- cast: what a person voted on an article, on the person's own list.
projection('cast', function(id, username)
  local vote = vote_of(key.article_up(id), key.article_down(id), 'user:' .. username)
  if vote == 'none' then return {'ZREM', key.person_votes(username), member_of(id)} end
  return {'ZADD', key.person_votes(username), vote == 'up' and 1 or -1, member_of(id)}
end)

-- The votes, from the sets.
local function count(id, article, up, down)
  local votes = text(redis.call('SCARD', up) - redis.call('SCARD', down))
  redis.call('HSET', article, 'votes', votes)
  project('ranked', id)
  return votes
end

-- vote: a person's vote is up, down or none from now on.
-- KEYS article, up, down   ARGV id, username, vote, now, seconds that voting is open (0: for ever)
-- Reply {time, votes}
command('vote', function(keys, args)
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
  project('cast', id, username)
  return {time, count(id, article, up, down)}
end)
