-- Where articles stand in each order. All follow from an article's time and vote sets, so they change with votes alone.

local MOVING = {'score', 'hot', 'best', 'controversial'} -- with every vote
local VOTE_SECONDS = 432       -- 86,400 s a day / 200 votes: with 200 votes an article stays up for a day
local HOT_EPOCH = 1134028003   -- 8 December 2005; any fixed moment gives the same order
local HOT_SECONDS = 45000      -- ten times the votes are worth twelve and a half hours
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
projection('ranked', function(id)
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
projection('dated', function(id)
  local time = redis.call('HGET', key.article(id), 'time')
  if not time then return {'ZREM', key.articles_by_time(), member_of(id)} end
  return {'ZADD', key.articles_by_time(), time, member_of(id)}
end)
