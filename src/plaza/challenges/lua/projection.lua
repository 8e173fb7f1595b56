-- Challenges. SQL is the record; these commands write what was read from it. They make sure that the latest read is
-- written last, and that a slot of the pool never has the posts of two days.

-- challenges_write_pool: add posts of one category to the pool, or remove them.
-- KEYS pool, day   ARGV today, max_post_age, '1' if the day may go back, then per post: id, its day ('' to remove it)
-- Reply the number of cleared slots
--
-- A slot is cleared before its number is used again, in the same step: the first write on a new day clears the slots of
-- all days since the last write. Only the daily job may go back in time: a process with a slow clock at midnight must
-- not remove new posts.
command('write_pool', function(keys, args)
  local pool, day_key = keys[1], keys[2]
  local today, age, may_go_back = tonumber(args[1]), tonumber(args[2]), args[3] == '1'
  local last = tonumber(redis.call('GET', day_key) or today)
  if today < last and not may_go_back then today = last end
  local first, final = math.min(today, last) + 1, math.max(today, last)
  final = math.min(final, first + age - 1)
  for day = first, final do
    redis.call('ZREMRANGEBYSCORE', pool, day % age, day % age)
  end
  redis.call('SET', day_key, text(today))
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

-- challenges_take_tickets: a ticket per user, taken before SQL is read.   KEYS tickets of each user   Reply the tickets
--
-- On a cluster this and the next command get one user at a time; on one server the daily job passes many.
command('take_tickets', function(keys)
  local tickets = {}
  for i, tickets_key in ipairs(keys) do
    tickets[i] = next_number(redis.call('HGET', tickets_key, 'next'))
    redis.call('HSET', tickets_key, 'next', tickets[i])
    redis.call('EXPIRE', tickets_key, TICKETS_SECONDS)
  end
  return tickets
end)

-- Writes one user's reactions from `args[i]` on. Returns whether they were written, and the index of the next user.
local function write_user(tickets, liked, preference, args, i)
  local ticket, scope = args[i], args[i + 1]
  local posts = i + 4
  local challenges = posts + 2 * tonumber(args[i + 2])
  local following = challenges + 2 * tonumber(args[i + 3])
  if tonumber(ticket) < tonumber(redis.call('HGET', tickets, 'done') or 0) then return 0, following end
  redis.call('HSET', tickets, 'done', ticket)
  if scope == 'all' then redis.call('UNLINK', liked, preference) end
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

-- challenges_write_reactions: write users' reactions as read from SQL.
-- KEYS per user: tickets, liked posts, preference
-- ARGV per user: ticket; 'all' if the user has no other reactions, else 'some'; number of posts, number of challenges;
--      per post: id, 1 or 0; per challenge: id, number of reactions
-- Reply per user 1, or 0 if a later read was already written: then nothing changes, and the caller reads again
command('write_reactions', function(keys, args)
  local written, at = {}, 1
  for i = 1, #keys, 3 do
    written[#written + 1], at = write_user(keys[i], keys[i + 1], keys[i + 2], args, at)
  end
  return written
end)

-- challenges_write_contributions: write the days that users have tracked.
-- KEYS user_contribution   ARGV per user: name, 'a,b,c,d,e'
command('write_contributions', function(keys, args)
  for i = 1, #args, 2 do
    local name, days = args[i], args[i + 1]
    if days == '0,0,0,0,0' then
      redis.call('HDEL', keys[1], name)
    else
      redis.call('HSET', keys[1], name, days)
    end
  end
end)
