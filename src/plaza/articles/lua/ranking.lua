-- The rankings of all articles. Scores follow from an article's time and vote sets, so only votes change them.

local function hot(votes, time)
  local size = math.log10(math.max(math.abs(votes), 1))
  return (votes < 0 and -size or size) + (time - HOT_EPOCH_SECONDS) / HOT_SECONDS
end

local function best(ups, downs)
  local n = ups + downs
  if n == 0 then return 0 end
  local share, zz = ups / n, BEST_Z * BEST_Z
  return (share + zz / (2 * n) - BEST_Z * math.sqrt((share * (1 - share) + zz / (4 * n)) / n)) / (1 + zz / n)
end

-- nil without votes of both kinds: most articles have only upvotes, and an entry takes as much as all their votes.
local function controversial(ups, downs)
  if ups == 0 or downs == 0 then return nil end
  return (ups + downs) ^ (math.min(ups, downs) / math.max(ups, downs))
end

-- What projections need of an article: author, time in seconds and votes as stored. A missing article has none of them.
local function state_of(id)
  local state = shared[id]
  if not state then
    local fields = redis.call('HMGET', key.article(id), 'author', 'time', 'votes')
    state = {author = fields[1], time = parse_seconds(fields[2]), votes = fields[3]}
    shared[id] = state
  end
  return state
end

-- An article's score in each order that has it, from the time in seconds, the number of votes and those of each kind.
local function scores_from(posted, count, ups, downs)
  return {
    time = posted,
    score = posted + VOTE_SECONDS * count,
    hot = hot(count, posted),
    best = best(ups, downs),
    top = count,
    controversial = controversial(ups, downs),
  }
end

-- An article's score in each order that has it; nil if the article does not exist or its time is invalid.
local function scores_of(id)
  local state = state_of(id)
  if state.scores or not state.time then return state.scores end
  local up, down = key.article_up(id), key.article_down(id)
  local count = tonumber(votes_of(state.votes, up, down))
  state.scores = scores_from(state.time, count, redis.call('SCARD', up), redis.call('SCARD', down))
  return state.scores
end

local CHANGING_ORDERS, RANKING = {'score'}, {} -- the orders that votes change; the keys of all rankings
for i = 1, #ADDITIONAL_ORDERS do CHANGING_ORDERS[i + 1] = ADDITIONAL_ORDERS[i] end
for i = 1, #ORDERS do RANKING[ORDERS[i]] = key['articles_by_' .. ORDERS[i]]() end

-- Commands that write an article's place in these orders. A deleted article, or one without a score, is removed. An
-- article whose time is invalid keeps the place that another service gave it.
local function ranking_commands(id, orders)
  local scores, commands = scores_of(id), {}
  if not scores and redis.call('EXISTS', key.article(id)) == 1 then return nil end
  for i, order in ipairs(orders) do
    if scores and scores[order] then
      commands[i] = {'ZADD', RANKING[order], scores[order], member_of(id)}
    else
      commands[i] = {'ZREM', RANKING[order], member_of(id)}
    end
  end
  return commands
end

-- Writes an article's place in these orders, on one server. `is_listed`: it may have a place in an order without a score now.
local function rank(id, orders, scores, is_listed)
  local member = member_of(id)
  for i = 1, #orders do
    local score = scores[orders[i]]
    if score then
      redis.call('ZADD', RANKING[orders[i]], score, member)
    elseif is_listed then
      redis.call('ZREM', RANKING[orders[i]], member)
    end
  end
end

-- additional_rankings: an article's score in the orders that votes change and the document does not have.
projection('additional_rankings', function(id) return ranking_commands(id, ADDITIONAL_ORDERS) end)

-- rankings: an article's score in every order that votes change.
projection('rankings', function(id) return ranking_commands(id, CHANGING_ORDERS) end)

-- time_ranking: an article's place by time.
projection('time_ranking', function(id) return ranking_commands(id, {'time'}) end)
