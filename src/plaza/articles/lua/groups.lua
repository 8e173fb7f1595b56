-- Groups. The documented set `group:<group>` is source data; other services write it too. `article:<id>:groups` is
-- Plaza's index of it. Plaza's own operations begin at the article, because they check its author, and write both.

-- In place of a builder's token, for a minute: no article of the group has a score in this order.
local NO_SCORES = '-'

local function keys_of_group(group)
  local names = {key.group(group)}
  for _, order in ipairs(ORDERS) do
    names[#names + 1] = key['group_by_' .. order](group)
    names[#names + 1] = key.group_building(order, group)
    names[#names + 1] = key.group_builder(order, group)
  end
  return names
end

-- group_member: whether a group has an article, after an operation on the article. The scores are passed on for
-- rankings of the group that exist; '' if they are unknown.
projection('group_member', function(id, group)
  local args = {group, member_of(id)}
  if redis.call('SISMEMBER', key.article_groups(id), group) == 0 or redis.call('EXISTS', key.article(id)) == 0 then
    return perform('remove_from_group', keys_of_group(group), args)
  end
  local scores = scores_of(id) or {}
  for _, order in ipairs(ORDERS) do args[#args + 1] = scores[order] or '' end
  return perform('add_to_group', keys_of_group(group), args)
end)

-- group_index: whether an article's index has a group, from the group's set.
projection('group_index', function(group, id)
  local is_member = redis.call('SISMEMBER', key.group(group), member_of(id))
  return perform('index_group', {key.article(id), key.article_groups(id)}, {id, group, is_member})
end)

-- index_group: add a group to an article's index (1) or remove it (0). A missing article leaves the group.
-- KEYS article, groups   ARGV id, group, 1 or 0
command('index_group', function(keys, args)
  local id, group, is_member = unpack(args)
  if redis.call('EXISTS', keys[1]) == 0 then
    redis.call('SREM', keys[2], group)
    project('group_member', id, group)
  else
    redis.call(is_member == '1' and 'SADD' or 'SREM', keys[2], group)
  end
end)

-- group_size: a group's number of articles, in the list of groups.
projection('group_size', function(group)
  local size = redis.call('SCARD', key.group(group))
  if size == 0 then return {'ZREM', key.groups(), group} end
  return {'ZADD', key.groups(), size, group}
end)

-- add_to_group: add an article to a group and to its rankings.
-- KEYS group, then per order: ranking, unfinished ranking, builder   ARGV group, member, then its score per order
command('add_to_group', function(keys, args)
  local has_rankings = redis.call('EXISTS', unpack(keys, 2)) > 0 -- usually there are none: they live for a minute
  for i = 1, has_rankings and #ORDERS or 0 do
    local ranking, building, builder = unpack(keys, 3 * i - 1, 3 * i + 1)
    local score = args[2 + i]
    -- A missing ranking must not be created with this one article: it would count as complete.
    if score ~= '' and redis.call('EXISTS', ranking) == 1 then redis.call('ZADD', ranking, score, args[2]) end
    if score ~= '' and redis.call('GET', builder) == NO_SCORES then redis.call('DEL', builder) end
    -- An unfinished one may be: its builder's scan may already have passed this article's place.
    if score ~= '' and redis.call('EXISTS', builder) == 1 then
      redis.call('ZADD', building, score, args[2])
      redis.call('EXPIRE', building, GROUP_SECONDS)
    end
  end
  redis.call('SADD', keys[1], args[2])
  project('group_size', args[1]) -- also if another service has added it
end)

-- remove_from_group: remove an article from a group and its rankings.   KEYS as add_to_group   ARGV group, member
command('remove_from_group', function(keys, args)
  for i = 1, #ORDERS do
    redis.call('ZREM', keys[3 * i - 1], args[2])
    redis.call('ZREM', keys[3 * i], args[2])
  end
  redis.call('SREM', keys[1], args[2])
  project('group_size', args[1])
end)

-- group: add an article to a group ('in') or remove it ('out').
-- KEYS article, groups   ARGV id, group, 'in' or 'out', username ('' for an admin)
-- Reply its groups
command('group', function(keys, args)
  local id, group, change, username = unpack(args)
  require_author(require_article(keys[1]), username)
  local is_member = redis.call('SISMEMBER', keys[2], group) == 1
  if change == 'in' and not is_member then
    if redis.call('SCARD', keys[2]) >= MAX_GROUPS then
      fail('too_many_groups', 'An article can be in at most ' .. MAX_GROUPS .. ' groups. Remove it from one first.')
    end
    redis.call('SADD', keys[2], group)
  elseif change == 'out' then
    redis.call('SREM', keys[2], group)
  end
  project('group_member', id, group) -- also if the index is unchanged: another service may have changed the group
  return redis.call('SMEMBERS', keys[2])
end)
