-- The lists and sums that have a post: explore feed, hashtag feeds, ranked sets, author's points. The owner is the post.
-- Each projection computes one of them from the post as it is now; a deleted or banned post is in none.

-- A stored score is off by 2% after 72 s for each (hour of age + 1). It is due after three quarters of that, which
-- leaves time for the worker.
local RESCORE_MS = 54000

-- On one server the projections of one command all use the same state of the post, so it is read once. A command that
-- changes the post calls project_engagement() or project_everything(), which drop the cached state. On a cluster a
-- projection may be computed again at any time, so nothing is cached.
local cached_states = {}

local function points_of(likes, comments, bookmarks)
  return math.floor(finite(likes, 0)) * LIKE_POINTS + math.floor(finite(comments, 0)) * COMMENT_POINTS
    + math.floor(finite(bookmarks, 0)) * BOOKMARK_POINTS
end

-- Returns the state from the values of a post's STATE_FIELDS, and caches it.
local function cache_state(id, f)
  local created = finite(f[2], nil)
  local state = {
    author = f[1], created = math.floor(created or 0), dated = created ~= nil, shown = not f[4],
    tags = f[3] and split(f[3]) or tags_in(redis.call('HGET', key.post(id), 'content')), has_tags_field = f[3] ~= false,
    points = points_of(f[5], f[6], f[7]),
    version = finite(f[8], 0),
  }
  if not CLUSTERED then cached_states = {[id] = state} end
  return state
end

local STATE_FIELDS = {'user_id', 'created_at', 'hashtags', 'banned', 'likesCount', 'commentsCount', 'bookmarksCount',
  'user_version'}

-- Returns what projections need of a post; nil if it does not exist or is no hash.
local function post_state(id)
  if cached_states[id] then return cached_states[id] end
  local f = redis.pcall('HMGET', key.post(id), unpack(STATE_FIELDS))
  return f[1] and cache_state(id, f) or nil
end

local function engagement_score(points, created, at)
  return points / (math.max(at - created, 0) / HOUR_MS + 1)
end

-- Returns when a stored score must be computed again: before it is off by 2%, and after 14 days. A score of 0 stays right,
-- but another service may have added points: it is computed again whenever the age of the post has doubled.
local function next_due(points, created, at)
  local over, age = created + RANKED_MS + 1, math.max(at - created, 0)
  if points == 0 then return math.min(over, at + age + HOUR_MS) end
  return math.min(over, at + RESCORE_MS * (age / HOUR_MS + 1))
end

local function is_ranked(post, at)
  return post and post.shown and #post.tags > 0 and at - post.created <= RANKED_MS
end

-- Adds a post to a list by its time. Without a valid `created_at` it keeps the score that another service gave it.
local function add_by_time(list, post, id)
  if post.dated then return {'ZADD', list, post.created, id} end
  return {'ZADD', list, 'NX', 0, id}
end

projection('shown', function(id)
  local post = post_state(id)
  if post and post.shown then return add_by_time(key.explore_feed(), post, id) end
  return {'ZREM', key.explore_feed(), id}
end)

projection('banned', function(id)
  local author, banned, since = unpack(redis.pcall('HMGET', key.post(id), 'user_id', 'banned', 'banned_at'))
  if author and banned then return {'ZADD', key.posts_banned(), math.floor(finite(since, 0)), id} end
  return {'ZREM', key.posts_banned(), id}
end)

local function has_tag(post, tag)
  for _, one in ipairs(post.tags) do
    if one == tag then return true end
  end
  return false
end

-- Without the field `hashtags`, another service may have listed the post under a tag that is not in its text: it stays.
projection('tagged', function(id, tag)
  local post = post_state(id)
  if post and post.shown and not post.has_tags_field and not has_tag(post, tag) then
    return {'ZADD', key.hashtag_posts(tag), 'XX', post.created, id}
  end
  if post and post.shown and has_tag(post, tag) then return add_by_time(key.hashtag_posts(tag), post, id) end
  return {'ZREM', key.hashtag_posts(tag), id}
end)

-- After 14 days another service leaves a post in the ranked set, with the score 0: it stays too.
projection('ranked', function(id, tag, at)
  local post = post_state(id)
  at = tonumber(at)
  local score = post and at - post.created <= RANKED_MS and engagement_score(post.points, post.created, at)
  if score and post.shown and has_tag(post, tag) then return {'ZADD', key.hashtag_ranked(tag), score, id} end
  if post and post.shown and not post.has_tags_field then return {'ZADD', key.hashtag_ranked(tag), 'XX', score or 0, id} end
  return {'ZREM', key.hashtag_ranked(tag), id}
end, 2)

-- What the worker needs to rescore the post when it is due. Where the record has 0, earlier releases read the points.
projection('due', function(id, at)
  local post = post_state(id)
  at = tonumber(at)
  if not is_ranked(post, at) then return {{'ZREM', key.ranking_due(), id}, {'HDEL', key.ranking_posts(), id}} end
  return {
    {'HSET', key.ranking_posts(), id, text(post.created) .. '|0|' .. table.concat(post.tags, ',')},
    {'ZADD', key.ranking_due(), math.floor(next_due(post.points, post.created, at)), id},
  }
end, 1)

projection('pointed', function(id, author)
  local post = post_state(id)
  local counted = post and post.author == author and post.shown and post.points or 0
  return perform('update_points', {key.user(author), key.user_points(author)}, {author, id, counted})
end)

local function project_ranks(id, tags, at)
  for _, tag in ipairs(tags) do project('ranked', id, tag, at) end
  if #tags > 0 then project('due', id, at) end
end

-- Sets a post's points in its author's sum. Returns what was counted before.
local function count_points(user, points, name, id, counted)
  local before, total = unpack(redis.call('HMGET', points, id, 'total'))
  before = finite(before, 0)
  if before == counted then return before end
  local role = role_of(user)
  if counted > 0 and not role then return before end -- the author was deleted, and the post will be
  total = finite(total, 0) + counted - before
  if total == 0 then
    redis.call('DEL', points)
  else
    if counted == 0 then
      redis.call('HDEL', points, id)
      redis.call('HSET', points, 'total', text(total))
    else
      redis.call('HSET', points, id, text(counted), 'total', text(total))
    end
  end
  if role == 'model' and CLUSTERED then
    project('leader', name)
  elseif role == 'model' then
    redis.call('ZADD', key.models_top_engagement(), text(total), name)
  end
  return before
end

-- Updates points and ranks after a like, comment or bookmark.
local function project_engagement(id, author, tags, at)
  cached_states = {}
  project('pointed', id, author)
  project_ranks(id, tags, at)
end

-- As project_engagement(), for a caller that has read the post's fields and changed them as it changed the post. On one
-- server it does at once what the projections of a ranked post would do. When the post is due depends on its points only if
-- it has none.
local function project_engagement_of(id, fields, at)
  local post = cache_state(id, fields)
  local age = at - post.created
  if CLUSTERED or not post.shown or not post.has_tags_field or age > RANKED_MS then
    project('pointed', id, post.author)
    return project_ranks(id, post.tags, at)
  end
  local before = count_points(key.user(post.author), key.user_points(post.author), post.author, id, post.points)
  local score = engagement_score(post.points, post.created, at)
  for _, tag in ipairs(post.tags) do redis.call('ZADD', key.hashtag_ranked(tag), score, id) end
  if #post.tags > 0 and (before == 0) ~= (post.points == 0) then project('due', id, at) end
end

-- Updates the explore feed and the hashtag lists.
local function project_lists(id, tags, at)
  project('shown', id)
  for _, tag in ipairs(tags) do project('tagged', id, tag) end
  project_ranks(id, tags, at)
end

-- Updates all lists and sums; `tags` are the current and the former ones.
local function project_everything(id, author, tags, at)
  cached_states = {}
  project_lists(id, tags, at)
  project('pointed', id, author)
end

-- update_points: set a post's points in its author's sum.
-- KEYS user, points   ARGV name, post, points
command('update_points', function(keys, args)
  count_points(keys[1], keys[2], args[1], args[2], tonumber(args[3]))
end)

-- rescore: update a post's scores on a cluster, where hashtag keys are on other nodes. A post that another service deleted
-- leaves the ranking.   KEYS post   ARGV id, now, the tags in its record
command('rescore', function(keys, args)
  local id, at, tags = args[1], args[2], split(args[3])
  cached_states = {}
  local post = post_state(id)
  if post then project('pointed', id, post.author) end
  project_ranks(id, post and post.tags or tags, at)
  project('due', id, at)
end)

-- Returns when a post was created, its points and its tags, from its record in `ranking:posts`. Counters that another
-- service has changed since count: then the author's points and the leaderboard follow. A post that is missing or banned has
-- no time.
local function refresh_record(id, record)
  local created, tags = string.match(record or '', '^(%d+)|%d+|(.*)$')
  -- An error if it is no hash.
  local f = redis.pcall('HMGET', key.post(id), 'user_id', 'banned', 'likesCount', 'commentsCount', 'bookmarksCount')
  if not created or not f[1] or f[2] then return nil, 0, tags or '' end
  local points = points_of(f[3], f[4], f[5])
  if tonumber(redis.call('HGET', key.user_points(f[1]), id) or 0) ~= points then project('pointed', id, f[1]) end
  return tonumber(created), points, tags
end

-- rescore_due: rescore the next batch of due posts on one server.
-- KEYS due, posts   ARGV now, batch size   Reply how many were due
command('rescore_due', function(keys, args)
  local due, posts, at, most = keys[1], keys[2], now(args[1]), tonumber(args[2])
  local ids = redis.call('ZRANGE', due, '-inf', text(at), 'BYSCORE', 'LIMIT', 0, most)
  if #ids == 0 then return 0 end
  cached_states = {}
  local again, over, gone, scores = {}, {}, {}, {}
  for i, record in ipairs(redis.call('HMGET', posts, unpack(ids))) do
    local id = ids[i]
    local created, points, tags = refresh_record(id, record)
    local ranked = created and at - created <= RANKED_MS
    local score = ranked and text(engagement_score(points, created, at))
    local lists = ranked and scores or over
    for tag in string.gmatch(tags, '[^,]+') do
      local list = lists[tag] or {}
      lists[tag] = list
      if ranked then list[#list + 1] = score end
      list[#list + 1] = id
    end
    if ranked then
      again[#again + 1] = text(math.floor(next_due(points, created, at)))
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
