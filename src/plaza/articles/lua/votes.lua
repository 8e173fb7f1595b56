-- Votes. The two vote sets are source data; `votes`, the rankings and the voter's index follow from them.

local function voter_command(id, username, vote)
  if vote == 'none' then return {'ZREM', key.user_votes(username), member_of(id)} end
  return {'ZADD', key.user_votes(username), vote == 'up' and 1 or -1, member_of(id)}
end

-- voter_index: a user's vote on an article, in the user's index.
projection('voter_index', function(id, username)
  return voter_command(id, username, vote_of(key.article_up(id), key.article_down(id), 'user:' .. username))
end)

local VALUES = {up = 1, down = -1, none = 0}

-- Changes `votes` and the scores by a difference. `votes` and `score:` are incremented, not set: another service that
-- votes with HINCRBY and ZINCRBY at the same time then loses nothing. On a cluster `score:` is on another node and is
-- set. `time`: the article's; then `downs` is the number of downvotes, and `had_downs` whether there were some before.
local function add_votes(id, article, up, down, stored, difference, time, downs, had_downs)
  local votes = votes_of(stored, up, down)
  if votes == stored then
    votes = text(redis.call('HINCRBY', article, 'votes', difference))
  else
    redis.call('HSET', article, 'votes', votes)
  end
  local points = VOTE_SECONDS * difference
  if CLUSTERED or not redis.call('ZADD', key.articles_by_score(), 'XX', 'INCR', points, member_of(id)) then
    project('rankings', id)
  elseif time then
    local scores = scores_from(time, tonumber(votes), redis.call('SCARD', up), downs)
    rank(id, ADDITIONAL_ORDERS, scores, had_downs or downs > 0)
  else
    project('additional_rankings', id)
  end
  return votes
end

-- Sets `votes` to the difference of the vote sets, and returns it.
local function count_votes(id, article, up, down)
  local votes = text(redis.call('SCARD', up) - redis.call('SCARD', down))
  redis.call('HSET', article, 'votes', votes)
  project('rankings', id)
  return votes
end

-- vote: set a user's vote to 'up', 'down' or 'none'.
-- KEYS article, up, down   ARGV id, username, vote, now, seconds that voting is open (0: always), origin ('' for none)
-- Reply {time, votes}
command('vote', function(keys, args)
  local article, up, down = unpack(keys)
  local id, username, vote, now_seconds, open_seconds, origin = unpack(args)
  local author, time, votes = require_article(article)
  if open_seconds ~= '0' and time and tonumber(now_seconds) >= time + tonumber(open_seconds) then
    fail('voting_closed', 'Voting on this article is closed.')
  end
  local voter = 'user:' .. username
  local changed_up = redis.call(vote == 'up' and 'SADD' or 'SREM', up, voter) == 1
  local downs = redis.call('SCARD', down)
  local had_downs, changed_down = downs > 0, false
  if vote == 'down' then
    changed_down = redis.call('SADD', down, voter) == 1
  elseif had_downs then -- most articles have none
    changed_down = redis.call('SREM', down, voter) == 1
  end
  if changed_down then downs = downs + (vote == 'down' and 1 or -1) end
  local posted = text(time or 0)
  if not (changed_up or changed_down) then return {posted, votes_of(votes, up, down)} end
  emit_vote(id, author, username, vote, origin)
  if CLUSTERED then
    project('voter_index', id, username)
  else
    redis.call(unpack(voter_command(id, username, vote)))
  end
  local was_up, was_down = changed_up ~= (vote == 'up'), changed_down ~= (vote == 'down')
  local before = was_up and 'up' or was_down and 'down' or 'none' -- a user found in both sets is an upvoter
  return {posted, add_votes(id, article, up, down, votes, VALUES[vote] - VALUES[before], time, downs, had_downs)}
end)
