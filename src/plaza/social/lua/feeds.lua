-- Reading lists of posts, and home feeds.

-- Returns the members of a set or a sorted set, or their number if they are more than a process caches.
local function few_members(set, count_command, read_command, ...)
  local size = redis.call(count_command, set)
  return size > MAX_CACHED_MEMBERS and size or redis.call(read_command, set, ...)
end

-- page_data: read posts, the users who like them, the profiles of their authors and of others, and lists. One server only.
-- KEYS posts, users, sorted sets, sets
-- ARGV number of posts, of users, of sorted sets, profile fields separated by commas ('' for none), post fields, …
-- Reply {values of each post}, {values of each profile}, {likes of each post}, {each list}: members, or a number if many
query('page_data', function(keys, args)
  local posts_end, users_end = tonumber(args[1]), args[1] + args[2]
  local wanted, posts, profiles, likes, lists, seen, author_at = split(args[4]), {}, {}, {}, {}, {}, nil
  for i = 5, #args do
    if args[i] == 'user_id' then author_at = i - 4 end
  end
  local function show(user)
    if #wanted == 0 or seen[user] then return end
    seen[user] = true
    local values = redis.call('HMGET', user, unpack(wanted))
    if exists(user) then values[1] = string.sub(user, #key.user('') + 1) end -- also if the field is missing
    profiles[#profiles + 1] = values
  end
  for i = posts_end + 1, users_end do show(keys[i]) end
  for i = 1, posts_end do
    local values = redis.call('HMGET', keys[i], unpack(args, 5))
    posts[i] = values
    likes[i] = few_members(key.post_likes(string.sub(keys[i], #key.post('') + 1)), 'SCARD', 'SMEMBERS')
    if values[author_at] then show(key.user(values[author_at])) end
  end
  for i = users_end + 1, #keys do
    local is_sorted = i <= users_end + args[3]
    lists[#lists + 1] = is_sorted and few_members(keys[i], 'ZCARD', 'ZRANGE', 0, -1)
      or few_members(keys[i], 'SCARD', 'SMEMBERS')
  end
  return {posts, profiles, likes, lists}
end)

-- Returns a function that returns whether an author is hidden from a viewer. It reads each author's relations once.
-- keys: the viewer's blocked, blocked_by, muted, following
local function author_filter(keys, hide_muted, only_followed)
  local known, lists = {}, hide_muted == '1' and 3 or 2
  local function is_hidden(author)
    for i = 1, lists do
      if redis.call('ZSCORE', keys[i], author) then return true end
    end
    return only_followed == '1' and redis.call('SISMEMBER', keys[4], author) == 0
  end
  return function(author)
    if known[author] == nil then known[author] = is_hidden(author) end
    return known[author]
  end
end

-- posts_hidden: return which posts are hidden from a viewer because of their authors. One server only.
-- KEYS the viewer's blocked, blocked_by, muted, following, then posts
-- ARGV 1 to hide muted users, 1 to hide users who are not followed   Reply {1 or 0, …}
query('posts_hidden', function(keys, args)
  local is_hidden, hidden_flags = author_filter(keys, args[1], args[2]), {}
  for i = 5, #keys do
    local author = redis.call('HGET', keys[i], 'user_id')
    hidden_flags[#hidden_flags + 1] = author and is_hidden(author) and 1 or 0
  end
  return hidden_flags
end)

-- Hidden posts that one call skips at most, so that it does not take long. With more, the caller counts in steps.
local MAX_HIDDEN_SKIPPED = 250

-- list_at_offset: the posts of a list, highest score first, after so many that the viewer may see. One server only.
-- KEYS list, then the viewer's blocked, blocked_by, muted, following (none if anonymous)
-- ARGV offset, count, 1 to hide muted users, 1 to hide users who are not followed, oldest time of a visible post or 0
-- Reply {rank, {post, score, …}}, or nil if too many posts are hidden
query('list_at_offset', function(keys, args)
  local list, left, count, oldest = keys[1], tonumber(args[1]), tonumber(args[2]), tonumber(args[5])
  local is_hidden = keys[2] and author_filter({unpack(keys, 2)}, args[3], args[4])
  local ids = redis.call('ZREVRANGE', list, 0, left + MAX_HIDDEN_SKIPPED - 1)
  local rank = 0
  while left > 0 and rank < #ids do
    rank = rank + 1
    local post = redis.pcall('HMGET', key.post(ids[rank]), 'user_id', 'banned', 'created_at') -- an error if it is no hash
    local is_shown = post[1] and not post[2] and finite(post[3], 0) >= oldest
    if is_shown and not (is_hidden and is_hidden(post[1])) then left = left - 1 end
  end
  if left > 0 and #ids == tonumber(args[1]) + MAX_HIDDEN_SKIPPED then return false end
  if left > 0 or count == 0 then return {rank, {}} end
  return {rank, redis.call('ZREVRANGE', list, rank, rank + count - 1, 'WITHSCORES')}
end)

-- A home feed longer than the first is cut to the second, so that an active reader's does not grow without end.
local MAX_HOME_POSTS, HOME_POSTS_AFTER_CUT = 2000, 1000

-- Returns a value that changes with every follow: the number of follows and the latest time.
local function follows_version(recent)
  local latest = redis.call('ZREVRANGE', recent, 0, 0, 'WITHSCORES')
  return redis.call('ZCARD', recent) .. ':' .. (latest[2] or '')
end

-- `tmp:home` is a documented key: another service may rebuild, expire or delete it at any time. Plaza sets the expiry of
-- the feed and of its state in one command, so a feed that another service touched expires at another time than its
-- state. An empty feed has no key; `empty` tells it from a deleted one.
local function expire_home(home, state, seconds)
  redis.call('EXPIRE', state, seconds)
  if redis.call('EXPIRE', home, seconds) == 1 then
    redis.call('HDEL', state, 'empty')
  else
    redis.call('HSET', state, 'empty', 1)
  end
end

local function is_own_home(home, state)
  if exists(home) then return redis.call('PEXPIRETIME', home) == redis.call('PEXPIRETIME', state) end
  return redis.call('HEXISTS', state, 'empty') == 1
end

-- Another service may add posts of an earlier time, which reads do not merge. So a feed is built again after a while, also
-- if it is read all the time. And if the clock was set back since the last merge: what is posted now has an earlier time.
local function is_old_home(built, upto, at)
  return at - finite(built, 0) > HOME_SECONDS * 1000 or at < finite(upto, 0) - MERGE_OVERLAP_MS
end

local function cut_home(home, state)
  if redis.call('ZCARD', home) <= MAX_HOME_POSTS then return end
  local floor = redis.call('ZREVRANGE', home, HOME_POSTS_AFTER_CUT, HOME_POSTS_AFTER_CUT, 'WITHSCORES')[2]
  redis.call('ZREMRANGEBYSCORE', home, '-inf', '(' .. floor)
  redis.call('HSET', state, 'floor', floor)
end

local function home_page(home, state, args, first)
  local score, id, count = args[first], args[first + 1], tonumber(args[first + 2])
  local floor = redis.call('HGET', state, 'floor') or ''
  return {'page', floor, members_after(home, score, id, count, true)}
end

-- One server: merges new posts of followed users from the explore feed. Returns false if there are too many.
local function merge_explore(home, state, following, explore, at, upto)
  local rows = redis.call('ZRANGE', explore, text(upto - MERGE_OVERLAP_MS), '+inf', 'BYSCORE', 'LIMIT', 0, MAX_MERGED + 1,
    'WITHSCORES')
  if #rows > 2 * MAX_MERGED then return false end
  for i = 1, #rows, 2 do
    local author = redis.call('HGET', key.post(rows[i]), 'user_id')
    if author and redis.call('SISMEMBER', following, author) == 1 then
      redis.call('ZADD', home, rows[i + 1], rows[i])
    end
  end
  redis.call('HSET', state, 'upto', text(math.max(at, upto)))
  return true
end

local function note_built_home(state, follows, at, floor, last_import)
  redis.call('HSET', state, 'follows', follows, 'upto', at, 'built', at, 'floor', floor, 'imported', last_import)
end

-- A feed of so many users and posts is built in one step. Up to `MAX_WHOLE_POSTS` it has all of them: to unite these takes
-- less than to read the newest of each list. Of more posts it gets about `NEWEST_POSTS`. Either takes about a millisecond.
local MAX_UNITED_USERS, MAX_UNITED_POSTS, MAX_WHOLE_POSTS, NEWEST_POSTS = 500, 4000, 2500, 1000

-- Returns the lists of posts of these users that are not empty, and the number of posts; nothing if there are too many.
-- A key of another type is as absent.
local function short_lists(names)
  if #names > MAX_UNITED_USERS then return end
  local lists, posts = {}, 0
  for _, name in ipairs(names) do
    local list = key.user_posts(name)
    local reply = redis.pcall('ZCARD', list)
    local size = type(reply) == 'number' and reply or 0
    posts = posts + size
    if posts > MAX_UNITED_POSTS then return end
    if size > 0 then lists[#lists + 1] = list end
  end
  return lists, posts
end

-- Returns a time since which about `NEWEST_POSTS` of so many posts were created: that of a post in the explore feed, which
-- has these among others. Nothing if all of them are wanted. Any time would give a correct feed.
local function time_of_newest(posts, explore)
  if posts <= MAX_WHOLE_POSTS then return end
  local rank = math.floor(NEWEST_POSTS / posts * redis.call('ZCARD', explore))
  return redis.call('ZREVRANGE', explore, rank, rank, 'WITHSCORES')[2]
end

local function add_rows(home, args, first)
  for i = first, #args, 1000 do
    local pairs = {unpack(args, i, math.min(i + 999, #args))}
    redis.call('ZADD', home, unpack(pairs))
  end
end

-- Stores the posts of these lists since a time, unless they are fewer than a feed has at least.
local function add_newest(home, lists, since)
  local rows = {}
  for _, list in ipairs(lists) do
    local found = redis.call('ZRANGE', list, since, '+inf', 'BYSCORE', 'WITHSCORES')
    for i = 1, #found, 2 do
      rows[#rows + 1], rows[#rows + 2] = found[i + 1], found[i]
    end
  end
  if #rows < 2 * HOME_DEPTH then return false end
  add_rows(home, rows, 1)
  return true
end

-- One server: stores posts of these users, all or at least `HOME_DEPTH`. Returns the time since which the feed is complete,
-- '' if it has all of them; nothing if there are too many.
local function unite_home(home, names, explore)
  local lists, posts = short_lists(names)
  if not lists then return end
  redis.call('DEL', home)
  local since = time_of_newest(posts, explore)
  if since and add_newest(home, lists, since) then return since end
  if #lists > 0 then
    local count = #lists
    lists[count + 1], lists[count + 2] = 'AGGREGATE', 'MAX' -- a post that is in two lists keeps its time
    redis.call('ZUNIONSTORE', home, count, unpack(lists))
  end
  return ''
end

-- home_open: return a page of a home feed after merging new posts; or what the caller must do first.
-- KEYS home, state, following, recent, and on one server explore and the last import
-- ARGV now, TTL in seconds, score, post, count, name
-- Reply {'page', floor, rows}, or {'build', follows, names, last import}, or {'merge', upto, names}; on a cluster
-- {'merge', upto, {}, follows, last import when it was built}
command('home_open', function(keys, args)
  local home, state, following, recent, explore, imported = unpack(keys)
  local at, last_import = now(args[1]), imported and redis.call('GET', imported) or ''
  complete_following(following, recent, state, args[6], text(at))
  local follows = follows_version(recent)
  local built_from, upto, built_after, built = unpack(redis.call('HMGET', state, 'follows', 'upto', 'imported', 'built'))
  built_after = built_after or ''
  local is_current = built_from == follows and (not imported or built_after == last_import)
  if not is_current or is_old_home(built, upto, at) or not is_own_home(home, state) then
    local names = redis.call('ZREVRANGE', recent, 0, MAX_FOLLOWED_READ - 1)
    local floor = explore and unite_home(home, names, explore)
    if not floor then return {'build', follows, names, last_import} end
    note_built_home(state, follows, text(at), floor, last_import)
    expire_home(home, state, args[2])
    cut_home(home, state)
    return home_page(home, state, args, 3)
  end
  local is_merged = explore and merge_explore(home, state, following, explore, at, tonumber(upto))
  expire_home(home, state, args[2]) -- after the merge, which may create the feed
  if not explore then return {'merge', upto, {}, follows, built_after} end
  if not is_merged then return {'merge', upto, redis.call('ZREVRANGE', recent, 0, MAX_FOLLOWED_READ - 1)} end
  cut_home(home, state)
  return home_page(home, state, args, 3)
end)

-- home_put: store a feed that was built.
-- KEYS home, state   ARGV TTL in seconds, follows, upto, floor, score, post, count, last import, then score, post, …
-- Reply as home_open's page
command('home_put', function(keys, args)
  local home, state = keys[1], keys[2]
  redis.call('DEL', home)
  note_built_home(state, args[2], args[3], args[4], args[8])
  add_rows(home, args, 9)
  expire_home(home, state, args[1])
  return home_page(home, state, args, 5)
end)

-- home_merge: add posts found since the last merge.
-- KEYS home, state   ARGV TTL in seconds, upto, score, post, count, then score, post, …   Reply as home_open's page
command('home_merge', function(keys, args)
  local home, state = keys[1], keys[2]
  if not is_own_home(home, state) then return {'gone'} end
  add_rows(home, args, 6)
  redis.call('HSET', state, 'upto', args[2])
  expire_home(home, state, args[1])
  cut_home(home, state)
  return home_page(home, state, args, 3)
end)

-- followers_with_feed: return which of some followers have a home feed. One server only.
-- KEYS followers recent   ARGV first, last   Reply {followers read, name, …}
query('followers_with_feed', function(keys, args)
  local names = redis.call('ZRANGE', keys[1], args[1], args[2])
  local found = {#names}
  for _, name in ipairs(names) do
    if redis.call('EXISTS', key.tmp_home(name), key.tmp_home_state(name)) > 0 then found[#found + 1] = name end
  end
  return found
end)

-- home_push: add new posts to a feed that exists, also to one that another service built. Its expiry does not change.
-- KEYS home, state   ARGV score, post, …
command('home_push', function(keys, args)
  local home, state = keys[1], keys[2]
  if exists(home) then return redis.call('ZADD', home, unpack(args)) end
  if not is_own_home(home, state) then return 0 end
  redis.call('ZADD', home, unpack(args))
  redis.call('PEXPIREAT', home, redis.call('PEXPIRETIME', state))
  redis.call('HDEL', state, 'empty')
  return 1
end)

-- restyle_progress: store how far a user's posts are updated. A newer version of the profile has started over.
-- KEYS restyle   ARGV name, version, position ('' when all are done)   Reply 1, or 0 if the version changed
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
