-- Repair commands of the audit.   KEYS a key of the owner   ARGV now_ms, then the ids that the header names

-- cart_copy_of_session: the copy of the account's cart in one session.
projection('cart_copy_of_session', function(token)
  local user, moved = unpack(redis.call('HMGET', key.session_state(token), 'user', 'moved'))
  if not user or user == '' or moved then return nil end
  return perform('copy_to_session', account_keys(user), {user, token})
end)

-- copy_to_session: copy the account's cart to one session.   KEYS account, cart, sessions   ARGV username, token
command('copy_to_session', function(keys, args) project('cart_copy', args[1], args[2]) end)

-- repair_session: what is derived from a session.   token
command('repair_session', function(keys, args)
  local token = args[2]
  repair_session(token)
  local user, moved = unpack(redis.call('HMGET', keys[1], 'user', 'moved'))
  if user and user ~= '' and not moved then take_changes(session_keys(token), token, user) end
  project('cart_copy_of_session', token)
end)

-- repair_account: every session of a user has a copy of the cart.   username
command('repair_account', function(keys, args) copy_to_all_sessions(key.user_session_tokens(args[2]), args[2]) end)
