-- Which articles a group has. The fact is the article's own (`article:<id>:groups`); the group's set follows it.

local GROUP_MS = 60000 -- how long a group's list lives

local function keys_of_group(group)
  local names = {key.group(group)}
  for _, order in ipairs(ORDERS) do
    names[#names + 1] = key['group_by_' .. order](group)
    names[#names + 1] = key.group_building(order, group)
    names[#names + 1] = key.group_builder(order, group)
  end
  return names
end

-- grouped: whether a group has an article. Its scores go along, for lists of the group that exist just now.
projection('grouped', function(id, group)
  local scores = redis.call('SISMEMBER', key.article_groups(id), group) == 1 and scores_of(id)
  local args = {group, member_of(id)}
  if not scores then return perform('expel', keys_of_group(group), args) end
  for _, order in ipairs(ORDERS) do args[#args + 1] = scores[order] end
  return perform('admit', keys_of_group(group), args)
end)

-- sized: how many articles a group has, in the list of groups.
projection('sized', function(group)
  local size = redis.call('SCARD', key.group(group))
  if size == 0 then return {'ZREM', key.groups(), group} end
  return {'ZADD', key.groups(), size, group}
end)

-- admit: a group gets an article.
-- KEYS group, then per order: list, list being built, builder   ARGV group, member, then its score per order
command('admit', function(keys, args)
  for i = 1, #ORDERS do
    local list, building, builder = unpack(keys, 3 * i - 1, 3 * i + 1)
    local score = args[2 + i]
    -- A list that is not there must not begin with this one: it would pass for the whole.
    if redis.call('EXISTS', list) == 1 then redis.call('ZADD', list, score, args[2]) end
    -- One being built may: its builder may have gone past this one's place already, before it put in the first.
    if redis.call('EXISTS', builder) == 1 then
      redis.call('ZADD', building, score, args[2])
      redis.call('PEXPIRE', building, GROUP_MS)
    end
  end
  if redis.call('SADD', keys[1], args[2]) == 1 then project('sized', args[1]) end
end)

-- expel: a group loses an article.   KEYS as of admit   ARGV group, member
command('expel', function(keys, args)
  for i = 1, #ORDERS do
    redis.call('ZREM', keys[3 * i - 1], args[2])
    redis.call('ZREM', keys[3 * i], args[2])
  end
  if redis.call('SREM', keys[1], args[2]) == 1 then project('sized', args[1]) end
end)

-- group: an article is in a group from now on, or no longer.
-- KEYS article, groups   ARGV id, group, 'in' or 'out', username ('' for an admin), most groups
-- Reply its groups
command('group', function(keys, args)
  local id, group, where, username, most = unpack(args)
  must_be_author(must_exist(keys[1]), username)
  local there = redis.call('SISMEMBER', keys[2], group) == 1
  if where == 'in' and not there then
    if redis.call('SCARD', keys[2]) >= tonumber(most) then
      fail('too_many_groups', 'An article is in ' .. most .. ' groups at most.')
    end
    redis.call('SADD', keys[2], group)
    project('grouped', id, group)
  elseif where == 'out' and there then
    redis.call('SREM', keys[2], group)
    project('grouped', id, group)
  end
  return redis.call('SMEMBERS', keys[2])
end)
