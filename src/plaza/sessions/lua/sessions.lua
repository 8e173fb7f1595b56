-- Sessions. A token owns `shop:session:<token>` and the keys that other packages keep per session. Nothing of a token is
-- written unless that hash exists, so a session that has ended never comes back.
--
-- Every command of a session begins with
--   KEYS session, then the data keys of the session
--   ARGV token, now_s, idle_s, absolute_s, '1' to start a session if there is none, …
--   Reply {'live' or 'new', user, since, seen, …}; else {'none'}; or {'replaced', new token, since, user} if a login has
--   just replaced the session
--
-- A package that keeps data per session adds to these lists:
--   data_keys    a function of the token that returns a key's name; the key is deleted with the session
--   on_replace   f(keys, change) when a login replaces a session; change = {token, new_token, user, username, keeps_data}
--   on_admit     f(username, token) when a user has one session more

local data_keys, on_replace, on_admit = {}, {}, {}

local function session_keys(token)
  local keys = {key.session_state(token)}
  for i, name in ipairs(data_keys) do keys[i + 1] = name(token) end
  return keys
end

-- seen: the entry of a session in `recent:`.
projection('seen', function(token)
  local seen, moved = unpack(redis.call('HMGET', key.session_state(token), 'seen', 'moved'))
  if not seen or moved then return {'ZREM', key.recent_tokens(), token} end
  return {'ZADD', key.recent_tokens(), seen, token}
end)

-- login: the entry of a session in `login:`.
projection('login', function(token)
  local user, moved = unpack(redis.call('HMGET', key.session_state(token), 'user', 'moved'))
  if not user or user == '' or moved then return {'HDEL', key.login_tokens(), token} end
  return {'HSET', key.login_tokens(), token, user}
end)

-- user_session: the entry of a session among those of a user.
projection('user_session', function(token, username)
  local user, since, moved = unpack(redis.call('HMGET', key.session_state(token), 'user', 'since', 'moved'))
  local keys = {key.user_session_tokens(username)}
  if user ~= username or moved then return perform('remove_user_session', keys, {token}) end
  return perform('add_user_session', keys, {username, token, since})
end)

-- evicted: ends a session that is no longer among those of its user.
projection('evicted', function(username, token)
  if redis.call('ZSCORE', key.user_session_tokens(username), token) then return nil end
  return perform('end_session', session_keys(token), {token, ''})
end)

-- add_user_session: a user has one session more; beyond the limit the oldest ends.
-- KEYS sessions   ARGV username, token, since
command('add_user_session', function(keys, args)
  local username, token, since = unpack(args)
  if redis.call('ZADD', keys[1], since, token) == 0 then return end
  for _, hook in ipairs(on_admit) do hook(username, token) end
  local surplus = redis.call('ZCARD', keys[1]) - MAX_SESSIONS_PER_USER
  if surplus <= 0 then return end
  for _, oldest in ipairs(redis.call('ZRANGE', keys[1], 0, surplus - 1)) do
    redis.call('ZREM', keys[1], oldest)
    project('evicted', username, oldest)
  end
end)

-- remove_user_session: a user has one session less.   KEYS sessions   ARGV token
command('remove_user_session', function(keys, args)
  redis.call('ZREM', keys[1], args[1])
end)

-- Ends every session of a user.
local function end_user_sessions(sessions, username)
  for _, token in ipairs(redis.call('ZRANGE', sessions, 0, -1)) do project('evicted', username, token) end
  redis.call('DEL', sessions)
end

-- Deletes a session and its data. `username` is nil if it is unknown, '' for a guest.
local function delete_session(keys, token, username)
  redis.call('DEL', unpack(keys))
  project('seen', token)
  if username == '' then return end
  project('login', token)
  if username then project('user_session', token, username) end
end

-- Whether a user was deleted, renamed or suspended since. On a cluster that key is on another node; the caller checks it.
local function is_revoked(username, since)
  if CLUSTERED or username == '' then return false end
  local at = redis.call('ZSCORE', key.token_cutoffs(), username)
  return at and tonumber(at) >= since * 1000
end

-- Finds the session of a token and records that it was seen. Returns the start of a reply, and whether there is a session.
local function enter(keys, args)
  local token, at = args[1], args[2]
  local user, since, seen, moved, to =
    unpack(redis.call('HMGET', keys[1], 'user', 'since', 'seen', 'moved', 'to'))
  if moved then
    if tonumber(at) <= tonumber(moved) then return {'replaced', to, since, user}, false end
    return {'none'}, false
  end
  if since and (at - seen > tonumber(args[3]) or at - since > tonumber(args[4]) or is_revoked(user, since)) then
    delete_session(keys, token, user)
    since = false
  end
  if not since then
    if args[5] ~= '1' then return {'none'}, false end
    redis.call('HSET', keys[1], 'user', '', 'since', at, 'seen', at)
    project('seen', token)
    return {'new', '', at, at}, true
  end
  -- The clocks of two processes may differ a little: the later time stays.
  if tonumber(at) > tonumber(seen) then
    redis.call('HSET', keys[1], 'seen', at)
    project('seen', token)
    seen = at
  end
  return {'live', user, since, seen}, true
end

-- session_user: which user is signed in with a token, or '', and since when. The session is not marked as seen.
-- KEYS session, …   ARGV now_s, idle_s, absolute_s   Reply {user, since}
query('session_user', function(keys, args)
  local user, since, seen, moved = unpack(redis.call('HMGET', keys[1], 'user', 'since', 'seen', 'moved'))
  if not since or moved then return {'', ''} end
  local expired = args[1] - seen > tonumber(args[2]) or args[1] - since > tonumber(args[3])
  return {expired and '' or user, since}
end)

-- enter_session: find the session of a request.
command('enter_session', function(keys, args)
  return (enter(keys, args))
end)

-- open_session: start the session of an authenticated user, under a new token.
-- KEYS session, …   ARGV token, now_s, username
command('open_session', function(keys, args)
  local token, at, username = unpack(args)
  redis.call('HSET', keys[1], 'user', username, 'since', at, 'seen', at)
  project('seen', token)
  project('login', token)
  project('user_session', token, username)
end)

-- replace_session: a login replaces a session. Requests with the old token are served until `until_s`.
-- KEYS session, …   ARGV token, until_s, new token, username   Reply what a hook returned, or ''
command('replace_session', function(keys, args)
  local session = keys[1]
  local token, until_s, new_token, username = unpack(args)
  local user, since, moved = unpack(redis.call('HMGET', session, 'user', 'since', 'moved'))
  if not since or moved then return '' end
  -- A token of another user must not lead to the new session, not even for a few seconds.
  local keeps_data = user == '' or user == username
  redis.call('HSET', session, 'moved', until_s, 'to', keeps_data and new_token or '')
  local change = {token = token, new_token = new_token, user = user, username = username, keeps_data = keeps_data}
  local reply = ''
  for _, hook in ipairs(on_replace) do reply = hook(keys, change) or reply end
  redis.call('PEXPIRE', session, REPLACED_MS)
  project('seen', token)
  if user ~= '' then
    project('login', token)
    project('user_session', token, user)
  end
  return reply
end)

-- end_session: end a session.
-- KEYS session, …   ARGV token, seen_s ('' in any case; else only if the session was not seen after that)
-- Reply 1, or 0 if it was seen since
command('end_session', function(keys, args)
  local token, seen_before = args[1], args[2]
  local user, seen, moved = unpack(redis.call('HMGET', keys[1], 'user', 'seen', 'moved'))
  if moved then -- it has ended; its hash stays, since it says where its data went
    project('seen', token)
    return 1
  end
  if seen_before ~= '' and seen and tonumber(seen) > tonumber(seen_before) then return 0 end
  delete_session(keys, token, user)
  return 1
end)

-- Makes `recent:`, `login:` and the user's sessions follow the session.
local function repair_session(token)
  local user = redis.call('HGET', key.session_state(token), 'user')
  if not user then return delete_session(session_keys(token), token) end
  project('seen', token)
  project('login', token)
  if user ~= '' then project('user_session', token, user) end
end

-- repair_user_session: whether a session belongs to a user.   KEYS session   ARGV now_ms, token, username
command('repair_user_session', function(keys, args) project('user_session', args[2], args[3]) end)
