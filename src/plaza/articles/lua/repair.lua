-- What the audit and a repair call: whatever follows from an article's facts is said once more.

-- counted: the counter is not behind an article that is there.
projection('counted', function(id)
  if redis.call('EXISTS', key.article(id)) == 0 then return nil end
  return perform('at_least', {key.articles_last()}, {id})
end)

-- at_least: an id was given.   KEYS counter   ARGV id
command('at_least', function(keys, args)
  if tonumber(redis.call('GET', keys[1]) or 0) < tonumber(args[1]) then redis.call('SET', keys[1], args[1]) end
end)

-- Everything that follows from an article's facts is said once more, whatever another writer has made of it.
-- Returns 1, or 0 if there is no such article.
local function mend(id)
  local article, up, down, in_groups = key.article(id), key.article_up(id), key.article_down(id), key.article_groups(id)
  local author = redis.call('HGET', article, 'author')
  local groups = redis.call('SMEMBERS', in_groups)
  if author then
    for _, voter in ipairs(redis.call('SINTER', up, down)) do -- an upvoter
      redis.call('SREM', down, voter)
      project('cast', id, voter:sub(6))
    end
    count(id, article, up, down)
    project('posted', id, author:sub(6))
  else
    redis.call('DEL', article, in_groups)
    project('ranked', id)
    shed(id, up, down)
  end
  project('dated', id)
  project('counted', id)
  for _, group in ipairs(groups) do project('grouped', id, group) end
  return author and 1 or 0
end

-- What the audit calls, for one article or one of its relations.   KEYS article   ARGV now_ms, id, and whom or what
command('repair_article', function(keys, args) return mend(args[2]) end)

command('repair_vote', function(keys, args)
  local article, id, voter = keys[1], args[2], 'user:' .. args[3]
  local up, down = key.article_up(id), key.article_down(id)
  if redis.call('SISMEMBER', up, voter) == 1 then redis.call('SREM', down, voter) end
  project('cast', id, args[3])
  if redis.call('EXISTS', article) == 1 then count(id, article, up, down) end
end)

command('repair_group', function(keys, args) project('grouped', args[2], args[3]) end)
command('repair_posted', function(keys, args) project('posted', args[2], args[3]) end)

-- repair_sized: how many articles a group has.   KEYS group   ARGV now_ms, group
command('repair_sized', function(keys, args) project('sized', args[2]) end)
