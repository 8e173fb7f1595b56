-- The rankings of all articles. Scores follow from an article's time and vote sets, so only votes change them.

local MOVING_ORDERS = {'score', 'hot', 'best', 'controversial'} -- their scores change with every vote
local HOT_EPOCH = 1134028003   -- 8 December 2005; any fixed time gives the same order
local HOT_SECONDS = 45000      -- ten times the votes are worth 12.5 hours
local Z = 1.281551565545       -- 80% confidence

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

-- An article's score in each order; nil if the article does not exist.
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

-- rankings: an article's score in every order that votes change.
projection('rankings', function(id)
  local scores, commands = scores_of(id), {}
  for _, order in ipairs(MOVING_ORDERS) do
    if scores then
      commands[#commands + 1] = {'ZADD', ranking(order), scores[order], member_of(id)}
    else
      commands[#commands + 1] = {'ZREM', ranking(order), member_of(id)}
    end
  end
  return commands
end)

-- time_ranking: an article's place by time.
projection('time_ranking', function(id)
  local time = redis.call('HGET', key.article(id), 'time')
  if not time then return {'ZREM', key.articles_by_time(), member_of(id)} end
  return {'ZADD', key.articles_by_time(), time, member_of(id)}
end)
