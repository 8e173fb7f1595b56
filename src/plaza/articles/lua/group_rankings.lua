-- A group's rankings: built from the ranking of all articles by one reader, in short steps; they live for a minute.

local MIN_LEFT_MS = 1000       -- a ranking about to expire might be gone before the caller reads it

-- Adds articles to a ranking; those without a score are left out.
local function add_scores(ranking, members, scores)
  local found = {}
  for i, member in ipairs(members) do
    if scores[i] then
      found[#found + 1] = scores[i]
      found[#found + 1] = member
    end
  end
  if #found > 0 then redis.call('ZADD', ranking, unpack(found)) end
end

-- begin_build: request a group's ranking. On one server a small group's is built at once.
-- KEYS ranking, unfinished ranking, builder, group, on one server the ranking of all articles
-- ARGV token, largest group that is built at once, group
-- Reply 'ready' (also if the group is empty), 'busy' while another process builds it, 'build' for the caller to build
command('begin_build', function(keys, args)
  local ranking, building, builder, group, all_articles = unpack(keys)
  if redis.call('PTTL', ranking) > MIN_LEFT_MS then return 'ready' end
  if redis.call('GET', builder) == NO_SCORES then return 'ready' end
  local size = redis.call('SCARD', group)
  project('group_size', args[3]) -- another service may have changed the group
  if size == 0 then return 'ready' end
  if all_articles and size <= tonumber(args[2]) then
    local members = redis.call('SMEMBERS', group)
    redis.call('UNLINK', ranking) -- it may have other members
    add_scores(ranking, members, redis.call('ZMSCORE', all_articles, unpack(members)))
    redis.call('EXPIRE', ranking, GROUP_SECONDS)
    return 'ready'
  end
  if not redis.call('SET', builder, args[1], 'NX', 'PX', BUILDER_MS) then return 'busy' end
  redis.call('UNLINK', building) -- left by a builder that stopped
  return 'build'
end)

local function renew_lease(building, builder)
  redis.call('EXPIRE', building, GROUP_SECONDS)
  redis.call('PEXPIRE', builder, BUILDER_MS)
end

if CLUSTERED then
  -- add_scores: add articles to an unfinished ranking if they are still in the group.
  -- KEYS unfinished ranking, builder, group   ARGV token, then member, score, …
  -- Reply 1, or 0 if the lease is lost
  command('add_scores', function(keys, args)
    local building, builder, group = unpack(keys)
    if redis.call('GET', builder) ~= args[1] then return 0 end
    local members, scores = {}, {}
    for i = 2, #args, 2 do members[#members + 1] = args[i] end
    if #members > 0 then
      for i, is_member in ipairs(redis.call('SMISMEMBER', group, unpack(members))) do
        scores[i] = is_member == 1 and args[2 * i + 1]
      end
      add_scores(building, members, scores)
    end
    renew_lease(building, builder)
    return 1
  end)
else
  -- step: scan more members of a group and add them to its unfinished ranking, until the CPU time is used up.
  -- KEYS unfinished ranking, builder, group, ranking of all articles   ARGV token, cursor, members per scan, CPU seconds
  -- Reply the next cursor, or nil if the lease is lost
  command('step', function(keys, args)
    local building, builder, group, all_articles = unpack(keys)
    local token, cursor, count, ends = args[1], args[2], args[3], os.clock() + tonumber(args[4])
    if redis.call('GET', builder) ~= token then return nil end
    repeat
      local members
      cursor, members = unpack(redis.call('SSCAN', group, cursor, 'COUNT', count))
      if #members > 0 then add_scores(building, members, redis.call('ZMSCORE', all_articles, unpack(members))) end
    until cursor == '0' or os.clock() >= ends
    renew_lease(building, builder)
    return cursor
  end)
end

-- publish: replace a group's ranking by the finished one.
-- KEYS ranking, unfinished ranking, builder   ARGV token, lifetime in ms   Reply 1, or 0 if the lease is lost
command('publish', function(keys, args)
  local ranking, building, builder = unpack(keys)
  if redis.call('GET', builder) ~= args[1] then return 0 end
  redis.call('DEL', builder)
  redis.call('UNLINK', ranking)
  if redis.call('EXISTS', building) == 1 then
    redis.call('RENAME', building, ranking)
    redis.call('PEXPIRE', ranking, args[2])
  else
    redis.call('SET', builder, NO_SCORES, 'PX', args[2])
  end
  return 1
end)
