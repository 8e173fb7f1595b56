-- Where a post stands: in the feeds of everyone and of its tags, in the ranked sets, in its author's sum. The owner is
-- the post. Each recipe says what one of these should hold, from the post's facts as they are now; a post that is gone or
-- banned should be in none of them.

local HOUR_MS = 3600000
local RANKED_MS = 14 * 24 * HOUR_MS

-- A stored score is off by 2% when 1.2 minutes have passed for every hour of age and one. Scoring again after three
-- quarters of that leaves time for the worker to come round.
local DUE_MS = 54000

local function split(joined)
  local parts = {}
  for part in string.gmatch(joined or '', '[^,]+') do parts[#parts + 1] = part end
  return parts
end

-- One server: the recipes of one verb all speak of the post as it left it, so its facts are read once. Every verb that
-- changes them asks for its effects through engaged(), which forgets them. On a cluster a recipe may be computed again
-- at any time, and reads for itself.
local read = {}

-- The values of a post's fields, in the order of facts_of, as the recipes need them.
local function remember(id, f)
  local facts = {
    author = f[1], created = tonumber(f[2]), hashtags = f[3] or '', tags = split(f[3]), shown = not f[4],
    points = (f[5] or 0) * 3 + (f[6] or 0) * 5 + (f[7] or 0) * 4, version = f[8] or '0',
  }
  if not CLUSTERED then read = {[id] = facts} end
  return facts
end

-- What the recipes need of a post; nil if it is gone.
local function facts_of(id)
  if read[id] then return read[id] end
  local f = redis.call('HMGET', key.post(id), 'user_id', 'created_at', 'hashtags', 'banned', 'likesCount',
    'commentsCount', 'bookmarksCount', 'user_version')
  return f[1] and remember(id, f) or nil
end

local function score_of(points, created, at)
  return points / (math.max(at - created, 0) / HOUR_MS + 1)
end

-- When a stored score must be computed again: before it is off by 2%, and when the 14 days are over.
local function due_of(points, created, at)
  local over = created + RANKED_MS + 1
  if points == 0 then return over end
  return math.min(over, at + DUE_MS * (math.max(at - created, 0) / HOUR_MS + 1))
end

local function is_ranked(post, at)
  return post and post.shown and #post.tags > 0 and at - post.created <= RANKED_MS
end

projection('shown', function(id)
  local post = facts_of(id)
  if post and post.shown then return {'ZADD', key.explore_feed(), post.created, id} end
  return {'ZREM', key.explore_feed(), id}
end)

local function has_tag(post, tag)
  for _, one in ipairs(post.tags) do
    if one == tag then return true end
  end
  return false
end

projection('tagged', function(id, tag)
  local post = facts_of(id)
  if post and post.shown and has_tag(post, tag) then return {'ZADD', key.hashtag_posts(tag), post.created, id} end
  return {'ZREM', key.hashtag_posts(tag), id}
end)

projection('ranked', function(id, tag, at)
  local post = facts_of(id)
  at = tonumber(at)
  if is_ranked(post, at) and has_tag(post, tag) then
    return {'ZADD', key.hashtag_ranked(tag), score_of(post.points, post.created, at), id}
  end
  return {'ZREM', key.hashtag_ranked(tag), id}
end, 2)

-- What the worker needs to score the post again when that is due.
projection('due', function(id, at)
  local post = facts_of(id)
  at = tonumber(at)
  if not is_ranked(post, at) then return {{'ZREM', key.ranking_due(), id}, {'HDEL', key.ranking_posts(), id}} end
  return {
    {'HSET', key.ranking_posts(), id, text(post.created) .. '|' .. text(post.points) .. '|' .. post.hashtags},
    {'ZADD', key.ranking_due(), math.floor(due_of(post.points, post.created, at)), id},
  }
end, 1)

projection('pointed', function(id, author)
  local post = facts_of(id)
  local counted = post and post.author == author and post.shown and post.points or 0
  return perform('note_points', {key.user(author), key.user_points(author)}, {author, id, counted})
end)

local function tags_of(post)
  return split(redis.call('HGET', post, 'hashtags'))
end

local function ranks(id, tags, at)
  for _, tag in ipairs(tags) do project('ranked', id, tag, at) end
  if #tags > 0 then project('due', id, at) end
end

-- Points follow every like, comment and bookmark: into the ranked sets of the post's tags, and to its author.
local function engaged(id, author, tags, at)
  read = {}
  project('pointed', id, author)
  ranks(id, tags, at)
end

-- A post in the lists of everyone and of its tags.
local function listed(id, tags, at)
  project('shown', id)
  for _, tag in ipairs(tags) do project('tagged', id, tag) end
  ranks(id, tags, at)
end

-- Everything that says where a post stands; `tags` are those it has and those it had.
local function all_effects(id, author, tags, at)
  read = {}
  listed(id, tags, at)
  project('pointed', id, author)
end

-- note_points: the author's sum. Each post's share is absolute; the sum moves with it in the same step.
-- KEYS user, points   ARGV name, post, points
command('note_points', function(keys, args)
  local user, points, name, id, counted = keys[1], keys[2], args[1], args[2], tonumber(args[3])
  local before = tonumber(redis.call('HGET', points, id) or 0)
  if before == counted then return end
  local role = redis.call('HGET', user, 'role')
  if counted > 0 and not role then return end -- the author is gone, and so will be the post
  if counted == 0 then redis.call('HDEL', points, id) else redis.call('HSET', points, id, text(counted)) end
  local total = redis.call('HINCRBY', points, 'total', text(counted - before))
  if total == 0 then redis.call('DEL', points) end
  if role == 'model' then project('leader', name) end
end)

-- rescore: a post's scores as of now, for a cluster, where tags are elsewhere.   KEYS post   ARGV id, now
command('rescore', function(keys, args)
  local id, at = args[1], args[2]
  local author = redis.call('HGET', keys[1], 'user_id')
  if author then engaged(id, author, tags_of(keys[1]), at) end
end)

-- rescore_due: the next batch of posts whose scores are due, for one server, from the compact records alone.
-- KEYS due, posts   ARGV now, how many   Reply how many there were
command('rescore_due', function(keys, args)
  local due, posts, at, most = keys[1], keys[2], now(args[1]), tonumber(args[2])
  local ids = redis.call('ZRANGE', due, '-inf', text(at), 'BYSCORE', 'LIMIT', 0, most)
  if #ids == 0 then return 0 end
  local again, over, gone, scores = {}, {}, {}, {}
  for i, record in ipairs(redis.call('HMGET', posts, unpack(ids))) do
    local id = ids[i]
    local created, points, tags = string.match(record or '', '^(%d+)|(%d+)|(.*)$')
    created, points = tonumber(created), tonumber(points)
    local ranked = created and at - created <= RANKED_MS
    local score = ranked and text(score_of(points, created, at))
    local lists = ranked and scores or over
    for tag in string.gmatch(tags or '', '[^,]+') do
      local list = lists[tag] or {}
      lists[tag] = list
      if ranked then list[#list + 1] = score end
      list[#list + 1] = id
    end
    if ranked then
      again[#again + 1] = text(math.floor(due_of(points, created, at)))
      again[#again + 1] = id
    else
      gone[#gone + 1] = id
    end
  end
  for tag, list in pairs(scores) do redis.call('ZADD', key.hashtag_ranked(tag), 'XX', unpack(list)) end
  for tag, list in pairs(over) do redis.call('ZREM', key.hashtag_ranked(tag), unpack(list)) end
  if #again > 0 then redis.call('ZADD', due, unpack(again)) end
  if #gone > 0 then
    redis.call('ZREM', due, unpack(gone))
    redis.call('HDEL', posts, unpack(gone))
  end
  return #ids
end)
