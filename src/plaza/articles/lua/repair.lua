-- Repair commands, called by the audit: they recompute what follows from an article's source data.

-- id_counter: the counter is not below the id of an existing article.
projection('id_counter', function(id)
  if redis.call('EXISTS', key.article(id)) == 0 then return nil end
  return perform('raise_counter', {key.articles_last()}, {id})
end)

-- raise_counter: set the counter to at least this id; replaces a value that is not an id.   KEYS counter   ARGV id
command('raise_counter', function(keys, args)
  local current = (redis.call('GET', keys[1]) or ''):match('^%d+$')
  if finite(current, -1) < tonumber(args[1]) then redis.call('SET', keys[1], args[1]) end
end)

-- group_repair: an article's index of groups, from the group's set.
projection('group_repair', function(id, group)
  return perform('repair_group', {key.group(group)}, {'', group, id})
end)

-- Recomputes what follows from an article's source data. Returns 1, or 0 if the article does not exist. A number of votes
-- that only differs from the vote sets is left to repair_votes: another service may be about to change it.
local function repair(id)
  local article, up, down, in_groups = key.article(id), key.article_up(id), key.article_down(id), key.article_groups(id)
  local exists = redis.call('EXISTS', article) == 1
  local groups = redis.call('SMEMBERS', in_groups)
  if exists then
    local author, votes = unpack(redis.call('HMGET', article, 'author', 'votes'))
    local counted = votes_of(votes, up, down)
    if counted ~= votes then redis.call('HSET', article, 'votes', counted) end
    if author then project('author_index', id, author:sub(6)) end
  else
    redis.call('DEL', in_groups)
    delete_rest(id, up, down)
  end
  project('rankings', id)
  project('time_ranking', id)
  project('id_counter', id)
  for _, group in ipairs(groups) do project(exists and 'group_repair' or 'group_member', id, group) end
  return exists and 1 or 0
end

-- For one article or one of its relations.   KEYS article   ARGV now_ms, id, then a username
command('repair_article', function(keys, args) return repair(args[2]) end)

-- repair_votes: `votes` and the rankings, from the vote sets. A user in both sets counts as an upvoter.
command('repair_votes', function(keys, args)
  local id = args[2]
  local up, down = key.article_up(id), key.article_down(id)
  for _, voter in ipairs(redis.call('SINTER', up, down)) do
    redis.call('SREM', down, voter)
    project('voter_index', id, voter:sub(6))
  end
  if redis.call('EXISTS', keys[1]) == 1 then count_votes(id, keys[1], up, down) end
end)

-- repair_vote: the voter's index.
command('repair_vote', function(keys, args) project('voter_index', args[2], args[3]) end)

command('repair_author_index', function(keys, args) project('author_index', args[2], args[3]) end)

-- repair_group_size: a group's number of articles.   KEYS group   ARGV now_ms, group
command('repair_group_size', function(keys, args) project('group_size', args[2]) end)

-- repair_group: an article's index and the group's size, from the group's set. What another service added stays.
-- KEYS group   ARGV now_ms, group, id
command('repair_group', function(keys, args)
  project('group_index', args[2], args[3])
  project('group_size', args[2])
end)
