-- What the audit calls to make things true again. Each says once more what follows from the facts as they are now.
-- KEYS a key of the owner   ARGV now_ms, then the ids that the header names

-- shown_again: a session of a person shows the person's cart.
recipe('shown_again', function(token)
  local user, moved = unpack(redis.call('HMGET', key.shop_session(token), 'user', 'moved'))
  if not user or user == '' or moved then return nil end
  return perform('show', account_keys(user), {user, token})
end)

-- show: one session shows the cart.   KEYS account, cart, sessions   ARGV username, token
verb('show', function(keys, args) effect('mirrored', args[1], args[2]) end)

-- mend_session   token
verb('mend_session', function(keys, args)
  mend_session(args[2])
  effect('shown_again', args[2])
end)

-- mend_belongs: whether a session is this person's.   token, username
verb('mend_belongs', function(keys, args) effect('belongs', args[2], args[3]) end)

-- mend_person: every session of a person shows their cart.   username
verb('mend_person', function(keys, args) mirror_all(key.shop_account_sessions(args[2]), args[2]) end)

-- mend_row: whether and how often a row is copied.   item
verb('mend_row', function(keys, args)
  local delay, due = unpack(redis.call('HMGET', keys[1], 'delay', 'due'))
  if delay and not (tonumber(delay) and tonumber(delay) > 0) then
    redis.call('HDEL', keys[1], 'delay', 'due')
  elseif delay and not tonumber(due) then
    redis.call('HSET', keys[1], 'due', args[1])
  end
  effect('scheduled', args[2])
end)

-- mend_popular: views count down from 0.   KEYS popular   item
verb('mend_popular', function(keys, args)
  if tonumber(redis.call('ZSCORE', keys[1], args[2]) or 0) > 0 then redis.call('ZREM', keys[1], args[2]) end
end)
