-- Challenges. SQL is the record, so what is written here was read there; these verbs see to it that what was read last
-- is what stays, and that a slot of the pool never holds the posts of two days.

-- challenges_pool: puts posts of one category into the pool, or takes them out.
-- KEYS pool, day   ARGV today, max_post_age, '1' if the day may go back, then per post: id, its day ('' to take it out)
-- Reply how many slots were emptied
--
-- A slot is emptied before its number is used again, in the same step: the first to come on a new day empties
-- the slots of all days since, whoever that is. Only the daily job may go back in time: another process whose clock is
-- a little behind at midnight must not take out what was posted since.
command('pool', function(keys, args)
  local pool, kept = keys[1], keys[2]
  local today, age, may_go_back = tonumber(args[1]), tonumber(args[2]), args[3] == '1'
  local last = tonumber(redis.call('GET', kept) or today)
  if today < last and not may_go_back then today = last end
  local first, final = math.min(today, last) + 1, math.max(today, last)
  final = math.min(final, first + age - 1)
  for day = first, final do
    redis.call('ZREMRANGEBYSCORE', pool, day % age, day % age)
  end
  redis.call('SET', kept, text(today))
  for i = 4, #args, 2 do
    local day = tonumber(args[i + 1])
    if day and day > today - age and day <= today then
      redis.call('ZADD', pool, day % age, args[i])
    else
      redis.call('ZREM', pool, args[i])
    end
  end
  return final - first + 1
end)

-- challenges_tickets: the right to write what is read from now on.   KEYS turn of each person   Reply the ticket of each
--
-- On a cluster these two are called for one person at a time; on one server the daily job calls them for many.
command('tickets', function(keys)
  local tickets = {}
  for i, turn in ipairs(keys) do
    tickets[i] = redis.call('HINCRBY', turn, 'next', 1)
    redis.call('EXPIRE', turn, 3600)
  end
  return tickets
end)

-- What SQL says of one person's reactions, from `args[i]` on. Returns whether it was written, and where the next begin.
local function write_person(turn, liked, preference, args, i)
  local ticket, way = args[i], args[i + 1]
  local posts = i + 4
  local challenges = posts + 2 * tonumber(args[i + 2])
  local following = challenges + 2 * tonumber(args[i + 3])
  if tonumber(ticket) < tonumber(redis.call('HGET', turn, 'done') or 0) then return 0, following end
  redis.call('HSET', turn, 'done', ticket)
  if way == 'all' then redis.call('UNLINK', liked, preference) end
  for at = posts, challenges - 2, 2 do
    redis.call(args[at + 1] == '1' and 'SADD' or 'SREM', liked, args[at])
  end
  for at = challenges, following - 2, 2 do
    if tonumber(args[at + 1]) > 0 then
      redis.call('ZADD', preference, args[at + 1], args[at])
    else
      redis.call('ZREM', preference, args[at])
    end
  end
  return 1, following
end

-- challenges_people: what SQL says of people's reactions.
-- KEYS per person: turn, liked, preference
-- ARGV per person: ticket; 'all' if nothing else stands, else 'some'; how many posts and challenges follow;
--      per post: id, 1 or 0; per challenge: id, number of reactions
-- Reply per person 1; 0 if somebody who read later has written: then nothing is changed, and the caller reads again
command('people', function(keys, args)
  local written, at = {}, 1
  for i = 1, #keys, 3 do
    written[#written + 1], at = write_person(keys[i], keys[i + 1], keys[i + 2], args, at)
  end
  return written
end)

-- challenges_contribution: the days that people have tracked.
-- KEYS user_contribution   ARGV 'exact', or 'most' where rows were only added; then per person: name, 'a,b,c,d,e'
--
-- Tracked days only become more, so of two that read at different times the larger number is the later one.
command('contribution', function(keys, args)
  for i = 2, #args, 2 do
    local name, days = args[i], args[i + 1]
    local had = args[1] == 'most' and redis.call('HGET', keys[1], name)
    if had then
      local most, old = {}, had:gmatch('%d+')
      for number in days:gmatch('%d+') do
        most[#most + 1] = text(math.max(tonumber(number), tonumber(old() or 0)))
      end
      days = table.concat(most, ',')
    end
    if days == '0,0,0,0,0' then
      redis.call('HDEL', keys[1], name)
    else
      redis.call('HSET', keys[1], name, days)
    end
  end
end)
