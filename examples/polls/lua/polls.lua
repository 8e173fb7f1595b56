-- Polls: create, vote, read.

-- popular: a poll's score in the list of all polls.
projection('popular', function(poll)
  local votes = redis.call('HGET', key.poll(poll), 'votes')
  if not votes then return {'ZREM', key.polls_popular(), poll} end
  return {'ZADD', key.polls_popular(), votes, poll}
end)

-- voter: whether a user has voted in a poll.
projection('voter', function(poll, username)
  local voted = redis.call('HEXISTS', key.poll_votes(poll), username) == 1
  return {voted and 'SADD' or 'SREM', key.user_polls(username), poll}
end)

local function count_votes(poll, votes)
  redis.call('HSET', poll, 'votes', redis.call('HLEN', votes))
end

-- polls_create: create a poll.
-- KEYS poll   ARGV id, username, question, options as JSON   Reply 1
command('create', function(keys, args)
  local id, username, question, options = unpack(args)
  redis.call('HSET', keys[1], 'author', username, 'question', question, 'options', options, 'votes', 0)
  project('popular', id)
  return 1
end)

-- polls_vote: set, change or remove a user's vote.
-- KEYS poll, votes   ARGV id, username, option ('' removes the vote)   Reply 1
command('vote', function(keys, args)
  local poll, votes = unpack(keys)
  local id, username, option = unpack(args)
  local options = redis.call('HGET', poll, 'options')
  if not options then fail('not_found', 'This poll does not exist.') end
  if option == '' then
    redis.call('HDEL', votes, username)
  elseif tonumber(option) <= #cjson.decode(options) then
    redis.call('HSET', votes, username, option)
  else
    fail('invalid', 'This poll has no such option.', {field = 'option'})
  end
  count_votes(poll, votes)
  project('popular', id)
  project('voter', id, username)
  return 1
end)

-- polls_read: a poll as one viewer sees it.
-- KEYS poll, votes   ARGV viewer's username or ''   Reply {author, question, options, viewer's option or '', votes…}, or nil
query('read', function(keys, args)
  local author, question, options = unpack(redis.call('HMGET', keys[1], 'author', 'question', 'options'))
  if not author then return nil end
  local reply = {author, question, options, redis.call('HGET', keys[2], args[1]) or ''}
  for _, option in ipairs(redis.call('HVALS', keys[2])) do reply[#reply + 1] = option end
  return reply
end)

-- polls_repair_poll: rebuild what is derived from a poll.   KEYS poll   ARGV now_ms, id
command('repair_poll', function(keys, args)
  local id = args[2]
  local votes = key.poll_votes(id)
  if redis.call('EXISTS', keys[1]) == 0 then
    redis.call('DEL', votes)
  else
    count_votes(keys[1], votes)
  end
  project('popular', id)
end)

-- polls_repair_voter: rebuild a user's entry for a poll.   KEYS poll   ARGV now_ms, id, username
command('repair_voter', function(keys, args)
  project('voter', args[2], args[3])
end)
