-- Sessions. A token owns `shop:session:<token>` and the keys that other packages keep per session. Nothing of a token is
-- written unless that hash exists, so a session that has ended never comes back.
--
-- `login:`, `recent:` and the data keys are source data; other services write them by the document. `login:` decides who is
-- signed in: a token that is removed there is signed out, and a token that is added there is signed in.
--
-- Every command of a session begins with
--   KEYS session, then the data keys of the session
--   ARGV token, now_s, idle_s, absolute_s, '1' to start a session if there is none,
--     and on a cluster, where they are on other nodes: the token's user in `login:` or '', its score in `recent:` or '', and '1'
--     unless updates of the session are pending; then the command's own, from ARGV[9]
--   Reply {'live' or 'new', user, since, seen, …}; else {'none'}; or {'replaced', new token, since, user} if a login has
--   just replaced the session
--
-- A package that keeps data per session adds to these lists:
--   data_keys    a function of the token that returns a key's name; the key is deleted with the session
--   on_replace   f(keys, change) when a login replaces a session; change = {token, new_token, user, username, keeps_data}
--   on_sign_in   f(keys) when a session gets a user
--   on_admit     f(username, token) when a user has one session more, at the node of the user

local data_keys, on_replace, on_sign_in, on_admit = {}, {}, {}, {}

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

-- Returns a token's user in `login:` and its score in `recent:`, each false if it has none.
local function read_documented(token, args)
  if not CLUSTERED then
    return redis.call('HGET', key.login_tokens(), token), tonumber(redis.call('ZSCORE', key.recent_tokens(), token) or nil)
  end
  return args[6] ~= '' and args[6], tonumber(args[7])
end

-- Whether the data keys of a session exist. Only another service writes them without a session.
local function has_data(keys)
  return #keys > 1 and redis.call('EXISTS', unpack(keys, 2)) > 0
end

-- Starts the session of a token that another service has written by the document. Returns user, since, seen; nil if there is
-- none, or it has expired.
local function adopt(keys, args, login, recent)
  local token, at = args[1], args[2]
  if not login and not has_data(keys) then return nil end
  if login and is_revoked(login, recent or 0) then return nil end
  if recent and at - recent > tonumber(args[3]) then return nil end
  local user, seen = login or '', text(math.min(recent or tonumber(at), tonumber(at)))
  redis.call('HSET', keys[1], 'user', user, 'since', seen, 'seen', seen)
  project('seen', token)
  if login then
    for _, hook in ipairs(on_sign_in) do hook(keys) end
    project('user_session', token, login)
  end
  return user, seen, seen
end

-- Makes a session follow `login:`. Returns the user, or nil if the session has ended.
local function follow_login(keys, token, user, login, at)
  if user == (login or '') then return user end
  if not login then
    delete_session(keys, token, user)
    return nil
  end
  -- Another service has signed in a guest, or another user.
  redis.call('HSET', keys[1], 'user', login, 'since', at)
  if user == '' then
    for _, hook in ipairs(on_sign_in) do hook(keys) end
  else
    project('user_session', token, user)
  end
  project('user_session', token, login)
  return login
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
  local login, recent = read_documented(token, args)
  if since then
    local before = user
    user = follow_login(keys, token, user, login, at)
    if not user then since = false elseif user ~= before then since = at end
  end
  if not since and args[5] ~= '1' and (not CLUSTERED or args[8] == '1') then
    user, since, seen = adopt(keys, args, login, recent)
  end
  if since and recent and recent > tonumber(seen) and recent <= tonumber(at) then seen = text(recent) end
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

-- enter_session: find the session of a request.
command('enter_session', function(keys, args)
  return (enter(keys, args))
end)

-- open_session: start the session of an authenticated user, under a new token.
-- KEYS session, …   ARGV token, now_s, username, device, address
command('open_session', function(keys, args)
  local token, at, username, device, address = unpack(args)
  redis.call('HSET', keys[1], 'user', username, 'since', at, 'seen', at, 'device', device, 'address', address)
  for _, hook in ipairs(on_sign_in) do hook(keys) end
  project('seen', token)
  project('login', token)
  project('user_session', token, username)
end)

-- replace_session: a login replaces a session. Requests with the old token are served until `until_s`.
-- KEYS session, …   ARGV token, until_s, new token, username
-- Reply what a hook returned, or ''; nil if there was no session
command('replace_session', function(keys, args)
  local session = keys[1]
  local token, until_s, new_token, username = unpack(args)
  local user, since, moved = unpack(redis.call('HMGET', session, 'user', 'since', 'moved'))
  if not since then return nil end
  if moved then return '' end
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
-- KEYS session, …   ARGV token, seen_s ('' in any case; else only if the session was not seen after that), '1' for a session
-- of Plaza only
-- Reply 1, or 0 if it was seen since, or is another service's
command('end_session', function(keys, args)
  local token, seen_before = args[1], args[2]
  local user, seen, moved = unpack(redis.call('HMGET', keys[1], 'user', 'seen', 'moved'))
  if not user and args[3] == '1' then return 0 end
  if moved then -- it has ended; its hash stays, since it says where its data went
    project('seen', token)
    return 1
  end
  if seen_before ~= '' and seen and tonumber(seen) > tonumber(seen_before) then return 0 end
  delete_session(keys, token, user)
  return 1
end)

-- login_check: compares the user of a session with `login:`.
projection('login_check', function(token)
  local user, moved = unpack(redis.call('HMGET', key.session_state(token), 'user', 'moved'))
  if not user or moved then return nil end
  return perform('check_login', {key.login_tokens()}, {token, user})
end)

-- check_login: end the session of a token that is not signed in, or sign in a guest.   KEYS login   ARGV token, user
command('check_login', function(keys, args)
  if (redis.call('HGET', keys[1], args[1]) or '') ~= args[2] then project('login_followed', args[1]) end
end)

-- login_followed: the session follows `login:`.
projection('login_followed', function(token)
  local login = redis.call('HGET', key.login_tokens(), token)
  return perform('follow_login', session_keys(token), {token, login or ''})
end)

-- follow_login: make a session follow `login:`.   KEYS session, …   ARGV token, user in `login:` or ''
command('follow_login', function(keys, args)
  local user, moved, seen = unpack(redis.call('HMGET', keys[1], 'user', 'moved', 'seen'))
  if not user or moved then return end
  follow_login(keys, args[1], user, args[2] ~= '' and args[2], seen)
end)

-- Makes a session follow `login:`, and its index entries follow the session.
local function repair_session(token)
  local user, moved = unpack(redis.call('HMGET', key.session_state(token), 'user', 'moved'))
  if not user then return end -- the documented keys of a token without a session belong to another service
  if user ~= '' then project('user_session', token, user) end
  if not moved then
    project('seen', token)
    project('login_check', token)
  end
end

-- repair_user_session: whether a session belongs to a user.   KEYS session   ARGV now_ms, token, username
command('repair_user_session', function(keys, args) project('user_session', args[2], args[3]) end)
