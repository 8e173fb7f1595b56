-- Lists of posts, as readers page through them.

-- posts_and_cards: posts, and what a page shows of their authors and of some others. One server.
-- KEYS posts, users   ARGV number of posts, fields of a card ('' for no cards), separated by commas, fields of a post, …
-- Reply {values of each post}, {values of each card}
query('posts_and_cards', function(keys, args)
  local count, wanted, posts, cards, seen, author_at = tonumber(args[1]), split(args[2]), {}, {}, {}, nil
  for i = 3, #args do
    if args[i] == 'user_id' then author_at = i - 2 end
  end
  local function show(user)
    if #wanted == 0 or seen[user] then return end
    seen[user] = true
    cards[#cards + 1] = redis.call('HMGET', user, unpack(wanted))
  end
  for i = count + 1, #keys do show(keys[i]) end
  for i = 1, count do
    local values = redis.call('HMGET', keys[i], unpack(args, 3))
    posts[i] = values
    if values[author_at] then show(key.user(values[author_at])) end
  end
  return {posts, cards}
end)

-- posts_hidden: which posts are not for a reader, because of who wrote them. One server.
-- KEYS the reader's blocked, blocked_by, muted, following, then posts
-- ARGV whether muted people are hidden, whether all are who are not followed   Reply {1 or 0, …}
query('posts_hidden', function(keys, args)
  local lists, following, told = args[1] == '1' and 3 or 2, args[2] == '1' and keys[4], {}
  local function is_hidden(author)
    for i = 1, lists do
      if redis.call('ZSCORE', keys[i], author) then return true end
    end
    return following and redis.call('SISMEMBER', following, author) == 0
  end
  for i = 5, #keys do
    local author = redis.call('HGET', keys[i], 'user_id')
    told[#told + 1] = author and is_hidden(author) and 1 or 0
  end
  return told
end)

-- How far back a read looks beyond its last merge: clocks of processes differ, and on a cluster a post reaches
-- `explore:feed` a moment after it was made.
local OVERLAP_MS = 2000

-- How many new posts of everyone a read looks through; if there are more, it is cheaper to ask those followed.
local MERGED = 300

-- A home feed that grows longer than this is cut, so that an active reader's does not grow for ever.
local HOME_MOST, HOME_KEPT = 2000, 1000

local HOME_NAMES = 6000

-- What changes whenever someone is followed: how many there are, and the latest.
local function follows_of(recent)
  local latest = redis.call('ZREVRANGE', recent, 0, 0, 'WITHSCORES')
  return redis.call('ZCARD', recent) .. ':' .. (latest[2] or '')
end

local function keep_home(home, state, seconds)
  redis.call('EXPIRE', home, seconds)
  redis.call('EXPIRE', state, seconds)
end

local function cut_home(home, state)
  if redis.call('ZCARD', home) <= HOME_MOST then return end
  local floor = redis.call('ZREVRANGE', home, HOME_KEPT, HOME_KEPT, 'WITHSCORES')[2]
  redis.call('ZREMRANGEBYSCORE', home, '-inf', '(' .. floor)
  redis.call('HSET', state, 'floor', floor)
end

local function home_page(home, state, args, first)
  local score, id, count = args[first], args[first + 1], tonumber(args[first + 2])
  local floor = redis.call('HGET', state, 'floor') or ''
  return {'page', floor, members_after(home, score, id, count, true)}
end

-- One server: takes in what was posted since the last merge by people who are followed. False if it is too much.
local function merge_explore(home, state, following, explore, at)
  local upto = tonumber(redis.call('HGET', state, 'upto'))
  local rows = redis.call('ZRANGE', explore, text(upto - OVERLAP_MS), '+inf', 'BYSCORE', 'LIMIT', 0, MERGED + 1,
    'WITHSCORES')
  if #rows > 2 * MERGED then return false end
  for i = 1, #rows, 2 do
    local author = redis.call('HGET', key.post(rows[i]), 'user_id')
    if author and redis.call('SISMEMBER', following, author) == 1 then
      redis.call('ZADD', home, rows[i + 1], rows[i])
    end
  end
  redis.call('HSET', state, 'upto', text(math.max(at, upto)))
  return true
end

-- home_open: a page of a home feed, brought up to date; or what it takes to do so.
-- KEYS home, state, following, recent, explore (one server)   ARGV now, seconds to live, score, post, count
-- Reply {'page', floor, rows}, or {'build', follows, names}, or {'merge', upto, names}
command('home_open', function(keys, args)
  local home, state, following, recent, explore = unpack(keys)
  local follows, at = follows_of(recent), now(args[1])
  if redis.call('HGET', state, 'follows') ~= follows then
    return {'build', follows, redis.call('ZREVRANGE', recent, 0, HOME_NAMES - 1)}
  end
  keep_home(home, state, args[2])
  if not explore then return {'merge', redis.call('HGET', state, 'upto'), {}} end
  if not merge_explore(home, state, following, explore, at) then
    return {'merge', redis.call('HGET', state, 'upto'), redis.call('ZREVRANGE', recent, 0, HOME_NAMES - 1)}
  end
  keep_home(home, state, args[2])
  cut_home(home, state)
  return home_page(home, state, args, 3)
end)

local function add_rows(home, args, first)
  for i = first, #args, 1000 do
    local pairs = {unpack(args, i, math.min(i + 999, #args))}
    redis.call('ZADD', home, unpack(pairs))
  end
end

-- home_put: a feed that was built.
-- KEYS home, state   ARGV seconds to live, follows, upto, floor, score, post, count, then score, post, …
-- Reply as home_open's page
command('home_put', function(keys, args)
  local home, state = keys[1], keys[2]
  redis.call('DEL', home)
  redis.call('HSET', state, 'follows', args[2], 'upto', args[3], 'floor', args[4])
  add_rows(home, args, 8)
  keep_home(home, state, args[1])
  return home_page(home, state, args, 5)
end)

-- home_merge: what was found since the last merge.
-- KEYS home, state   ARGV seconds to live, upto, score, post, count, then score, post, …   Reply as home_open's page
command('home_merge', function(keys, args)
  local home, state = keys[1], keys[2]
  if not exists(state) then return {'gone'} end
  add_rows(home, args, 6)
  redis.call('HSET', state, 'upto', args[2])
  keep_home(home, state, args[1])
  cut_home(home, state)
  return home_page(home, state, args, 3)
end)

-- home_push: a new post, into a feed that exists. Its time to live is its readers' affair.
-- KEYS home, state   ARGV score, post
command('home_push', function(keys, args)
  local left = redis.call('PTTL', keys[2])
  if left <= 0 then return 0 end
  redis.call('ZADD', keys[1], args[1], args[2])
  redis.call('PEXPIRE', keys[1], left)
  return 1
end)

-- restyle_progress: how far the posts of someone are done; a newer change of the profile starts over by itself.
-- KEYS restyle   ARGV name, version, position ('' when all are done)   Reply 1, or 0 if it is another's turn
command('restyle_progress', function(keys, args)
  local version = string.match(redis.call('HGET', keys[1], args[1]) or '', '^(%d+)|')
  if version ~= args[2] then return 0 end
  if args[3] == '' then
    redis.call('HDEL', keys[1], args[1])
  else
    redis.call('HSET', keys[1], args[1], version .. '|' .. args[3])
  end
  return 1
end)
