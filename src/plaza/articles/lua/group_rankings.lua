-- Lists of a group, cut from an order and kept for a minute: one reader builds, in steps that each take Valkey a moment.

local BUILDER_MS = 5000
local ENOUGH_MS = 1000         -- whoever is told that a list is there still has to read it

-- Puts articles in a list that is being built.
local function put(list, members, scores)
  local found = {}
  for i, member in ipairs(members) do
    if scores[i] then
      found[#found + 1] = scores[i]
      found[#found + 1] = member
    end
  end
  if #found > 0 then redis.call('ZADD', list, unpack(found)) end
end

-- begin: someone wants a group's list. On one server a small group is cut at once.
-- KEYS list, list being built, builder, group, on one server the ranking   ARGV token, how many are cut at once
-- Reply 'there' (also if the group is empty), 'busy' while someone else builds it, or 'yours' to build
command('begin', function(keys, args)
  local list, building, builder, group, whole = unpack(keys)
  if redis.call('PTTL', list) > ENOUGH_MS then return 'there' end
  local size = redis.call('SCARD', group)
  if size == 0 then return 'there' end
  if whole and size <= tonumber(args[2]) then
    local members = redis.call('SMEMBERS', group)
    redis.call('UNLINK', list) -- it may have been much longer
    put(list, members, redis.call('ZMSCORE', whole, unpack(members)))
    redis.call('PEXPIRE', list, GROUP_MS)
    return 'there'
  end
  if not redis.call('SET', builder, args[1], 'NX', 'PX', BUILDER_MS) then return 'busy' end
  redis.call('UNLINK', building) -- of a builder that stopped
  return 'yours'
end)

local function keep(building, builder)
  redis.call('PEXPIRE', building, GROUP_MS)
  redis.call('PEXPIRE', builder, BUILDER_MS)
end

if CLUSTERED then
  -- fold: some more of a list being built, as far as they are still in the group.
  -- KEYS list being built, builder, group   ARGV token, then member, score, …
  -- Reply 1, or 0 if another builds it by now
  command('fold', function(keys, args)
    local building, builder, group = unpack(keys)
    if redis.call('GET', builder) ~= args[1] then return 0 end
    local members, scores = {}, {}
    for i = 2, #args, 2 do members[#members + 1] = args[i] end
    for i, is_there in ipairs(redis.call('SMISMEMBER', group, unpack(members))) do
      scores[i] = is_there == 1 and args[2 * i + 1]
    end
    put(building, members, scores)
    keep(building, builder)
    return 1
  end)
else
  -- step: some more of a list being built, where all keys are on this server.
  -- KEYS list being built, builder, group, ranking   ARGV token, cursor, count
  -- Reply the next cursor, or nil if another builds it by now
  command('step', function(keys, args)
    local building, builder, group, whole = unpack(keys)
    if redis.call('GET', builder) ~= args[1] then return nil end
    local cursor, members = unpack(redis.call('SSCAN', group, args[2], 'COUNT', args[3]))
    if #members > 0 then put(building, members, redis.call('ZMSCORE', whole, unpack(members))) end
    keep(building, builder)
    return cursor
  end)
end

-- publish: a list is built.
-- KEYS list, list being built, builder   ARGV token, how long it lives   Reply 1, or 0 if another builds it by now
command('publish', function(keys, args)
  local list, building, builder = unpack(keys)
  if redis.call('GET', builder) ~= args[1] then return 0 end
  redis.call('DEL', builder)
  redis.call('UNLINK', list)
  if redis.call('EXISTS', building) == 1 then
    redis.call('RENAME', building, list)
    redis.call('PEXPIRE', list, args[2])
  end
  return 1
end)
