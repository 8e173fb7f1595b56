-- What the audit calls to make things true again. Each says once more what follows from the facts as they are now.
-- KEYS a key of the owner   ARGV now_ms, then the ids that the header names

-- shown_again: a session of a person shows the person's cart.
projection('shown_again', function(token)
  local user, moved = unpack(redis.call('HMGET', key.shop_session(token), 'user', 'moved'))
  if not user or user == '' or moved then return nil end
  return perform('show', account_keys(user), {user, token})
end)

-- show: one session shows the cart.   KEYS account, cart, sessions   ARGV username, token
command('show', function(keys, args) project('mirrored', args[1], args[2]) end)

-- repair_session   token
command('repair_session', function(keys, args)
  repair_session(args[2])
  project('shown_again', args[2])
end)

-- repair_belongs: whether a session is this person's.   token, username
command('repair_belongs', function(keys, args) project('belongs', args[2], args[3]) end)

-- repair_person: every session of a person shows their cart.   username
command('repair_person', function(keys, args) mirror_all(key.shop_account_sessions(args[2]), args[2]) end)
