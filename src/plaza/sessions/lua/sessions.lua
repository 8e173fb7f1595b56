-- Sessions. A token owns `shop:session:<token>`, its cart and what it has viewed; nothing of a token is ever written
-- unless that hash is there, which is why a session that has ended never comes back, whatever runs beside it.
--
-- Every verb of a session begins
--   KEYS session, cart, viewed, …   ARGV token, now_s, idle_s, absolute_s, new ('1': begin a session if there is none), …
--   Reply {state, user, since, seen, …} with state 'live' (or 'new'), else {'none'}, or {'moved', the token that
--   replaced it, since, user} of a session that was replaced at login just now

local NEWEST_VIEWED = 25
local MOVED_MS = 86400000 -- how long a replaced session is remembered: far longer than settling takes

-- seen: when a token was last seen.
projection('seen', function(token)
  local seen, moved = unpack(redis.call('HMGET', key.shop_session(token), 'seen', 'moved'))
  if not seen or moved then return {'ZREM', key.shop_recent(), token} end
  return {'ZADD', key.shop_recent(), seen, token}
end)

-- known: who is behind a token.
projection('known', function(token)
  local user, moved = unpack(redis.call('HMGET', key.shop_session(token), 'user', 'moved'))
  if not user or user == '' or moved then return {'HDEL', key.shop_logins(), token} end
  return {'HSET', key.shop_logins(), token, user}
end)

local function account_keys(username)
  return {key.shop_account(username), key.shop_account_cart(username), key.shop_account_sessions(username)}
end

-- belongs: whether a person has a session.
projection('belongs', function(token, username)
  local user, since, moved = unpack(redis.call('HMGET', key.shop_session(token), 'user', 'since', 'moved'))
  if user ~= username or moved then return perform('part', account_keys(username), {username, token}) end
  return perform('admit', account_keys(username), {username, token, since})
end)

local function finish(keys, token, username)
  redis.call('DEL', unpack(keys, 1, 3))
  project('seen', token)
  if username == '' then return end
  project('known', token)
  if username then project('belongs', token, username) end
end

-- Whether a person was deleted, renamed or suspended since: nothing is done for their session any more. On a cluster that
-- list is elsewhere, and whoever asks has looked.
local function is_cut_off(username, since)
  if CLUSTERED or username == '' then return false end
  local at = redis.call('ZSCORE', key.token_cutoffs(), username)
  return at and tonumber(at) >= since * 1000
end

-- The session of a token, seen now. Returns the beginning of a reply, and whether there is one to work with.
local function enter(keys, args)
  local token, at = args[1], args[2]
  local user, since, seen, moved, to =
    unpack(redis.call('HMGET', keys[1], 'user', 'since', 'seen', 'moved', 'to'))
  if moved then
    if tonumber(at) <= tonumber(moved) then return {'moved', to, since, user}, false end
    return {'none'}, false
  end
  if since and (at - seen > tonumber(args[3]) or at - since > tonumber(args[4]) or is_cut_off(user, since)) then
    finish(keys, token, user)
    since = false
  end
  if not since then
    if args[5] ~= '1' then return {'none'}, false end
    redis.call('HSET', keys[1], 'user', '', 'since', at, 'seen', at)
    project('seen', token)
    return {'new', '', at, at}, true
  end
  -- Clocks of two processes may differ a little: what was seen later stays.
  if tonumber(at) > tonumber(seen) then
    redis.call('HSET', keys[1], 'seen', at)
    project('seen', token)
    seen = at
  end
  return {'live', user, since, seen}, true
end

-- peek: who is signed in with a token, or '', and since when.
-- KEYS session, cart, viewed   ARGV now_s, idle_s, absolute_s   Reply {user, since}
query('peek', function(keys, args)
  local user, since, seen, moved = unpack(redis.call('HMGET', keys[1], 'user', 'since', 'seen', 'moved'))
  if not since or moved then return {'', ''} end
  local over = args[1] - seen > tonumber(args[2]) or args[1] - since > tonumber(args[3])
  return {over and '' or user, since}
end)

-- enter: a request comes with a token.
command('enter', function(keys, args)
  return (enter(keys, args))
end)

-- open: a session of a person who has proved who they are, under a token that nobody has seen yet.
-- KEYS session, cart, viewed   ARGV token, now_s, username
command('open', function(keys, args)
  local token, at, username = unpack(args)
  redis.call('HSET', keys[1], 'user', username, 'since', at, 'seen', at)
  project('seen', token)
  project('known', token)
  project('belongs', token, username)
end)

-- hand_over: a session is replaced at login. A guest's cart goes to the account, what was viewed to the new session.
-- KEYS session, cart, viewed   ARGV token, now_s, until when requests in flight are served, new token, username
-- Reply the id of its cart if that was being checked out, else ''
command('hand_over', function(keys, args)
  local session, cart, viewed = unpack(keys)
  local token, at, till, new, username = unpack(args)
  local user, since, moved, ordering = unpack(redis.call('HMGET', session, 'user', 'since', 'moved', 'cart'))
  if not since or moved then return '' end
  local guest = user == ''
  -- Whoever was signed in as another must not become the new person, not even for a few seconds.
  local follows = guest or user == username
  redis.call('HSET', session, 'moved', till, 'to', follows and new or '')
  if guest then
    redis.call('HSET', session, 'for', username, 'parcel', table.concat(redis.call('HGETALL', cart), ' '))
    project('handed', token)
  end
  if follows then project('viewed_too', token) else redis.call('DEL', viewed) end
  redis.call('DEL', cart)
  redis.call('PEXPIRE', session, MOVED_MS)
  redis.call('PEXPIRE', viewed, MOVED_MS)
  project('seen', token)
  if not guest then
    project('known', token)
    project('belongs', token, user)
  end
  return ordering or ''
end)

-- viewed_too: what a replaced session had viewed.
projection('viewed_too', function(token)
  local to = redis.call('HGET', key.shop_session(token), 'to')
  local seen = redis.call('ZRANGE', key.shop_viewed(token), 0, -1, 'WITHSCORES')
  if not to or #seen == 0 then return nil end
  local args = {}
  for i = 1, #seen, 2 do
    args[i], args[i + 1] = seen[i + 1], seen[i]
  end
  return perform('viewed_before', {key.shop_session(to), key.shop_cart(to), key.shop_viewed(to)}, args)
end)

local function trim_viewed(viewed)
  redis.call('ZREMRANGEBYRANK', viewed, 0, -NEWEST_VIEWED - 1)
end

-- viewed_before: what a session had viewed under another token.   KEYS session, cart, viewed   ARGV time, item, …
command('viewed_before', function(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return end
  redis.call('ZADD', keys[3], 'GT', unpack(args))
  trim_viewed(keys[3])
end)

-- end: a session is over.
-- KEYS session, cart, viewed   ARGV token, seen (only if it was not seen after that; '' in any case)
-- Reply 1, or 0 if it was seen since
command('end', function(keys, args)
  local token, before = args[1], args[2]
  local user, seen, moved = unpack(redis.call('HMGET', keys[1], 'user', 'seen', 'moved'))
  if moved then -- it is over already, and must remember where its cart went
    project('seen', token)
    return 1
  end
  if before ~= '' and seen and tonumber(seen) > tonumber(before) then return 0 end
  finish(keys, token, user)
  return 1
end)

-- What is said of a session elsewhere follows from it again.
local function repair_session(token)
  local keys = {key.shop_session(token), key.shop_cart(token), key.shop_viewed(token)}
  local user, moved = unpack(redis.call('HMGET', keys[1], 'user', 'moved'))
  if not user then return finish(keys, token) end
  project('seen', token)
  project('known', token)
  if user ~= '' then project('belongs', token, user) end
  if not moved then trim_viewed(keys[3]) end
end
