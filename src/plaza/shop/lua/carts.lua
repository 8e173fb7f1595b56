-- Carts. A guest's is `cart:<token>`; a person's belongs to the account, and `cart:<token>` of each of their sessions
-- shows it. A cart has an id from the moment it is checked out until that is done: by it an order knows its cart.

local MOST_PER_LINE = 999
local MOST_LINES = 100
local MOST_MERGED = 500 -- carts that join may be longer: nothing is lost at login
local MOST_SESSIONS = 50 -- beyond it the oldest session of a person ends
local ABSORBED = 50 -- how many joined carts an account remembers, so that one that comes twice counts once

-- mirrored: what a session of a person shows.
projection('mirrored', function(username, token)
  local lines = redis.call('HGETALL', key.shop_account_cart(username))
  return perform('mirror', {key.shop_session(token), key.shop_cart(token), key.shop_viewed(token)}, {username, unpack(lines)})
end)

local function mirror_all(sessions, username)
  for _, token in ipairs(redis.call('ZRANGE', sessions, 0, -1)) do project('mirrored', username, token) end
end

-- mirror: the account's cart, as a session of that person shows it.   KEYS session, cart, viewed   ARGV username, item, qty, …
command('mirror', function(keys, args)
  local user, moved = unpack(redis.call('HMGET', keys[1], 'user', 'moved'))
  if user ~= args[1] or moved then return end -- it has ended, or is not theirs
  redis.call('DEL', keys[2])
  if #args > 1 then redis.call('HSET', keys[2], unpack(args, 2)) end
end)

-- ended: a session of a person ends for another reason than their own: they have too many.
projection('ended', function(username, token)
  if redis.call('ZSCORE', key.shop_account_sessions(username), token) then return nil end
  return perform('end', {key.shop_session(token), key.shop_cart(token), key.shop_viewed(token)}, {token, ''})
end)

-- admit: a person has a session more.   KEYS account, cart, sessions   ARGV username, token, since
command('admit', function(keys, args)
  local username, token, since = unpack(args)
  if redis.call('ZADD', keys[3], since, token) == 0 then return end
  if redis.call('EXISTS', keys[2]) == 1 then project('mirrored', username, token) end
  local over = redis.call('ZCARD', keys[3]) - MOST_SESSIONS
  if over > 0 then
    for _, oldest in ipairs(redis.call('ZRANGE', keys[3], 0, over - 1)) do
      redis.call('ZREM', keys[3], oldest)
      project('ended', username, oldest)
    end
  end
end)

-- part: a person has a session less.   KEYS account, cart, sessions   ARGV username, token
command('part', function(keys, args)
  redis.call('ZREM', keys[3], args[2])
end)

-- handed: a guest's cart goes to the account at login.
projection('handed', function(token)
  local username, parcel = unpack(redis.call('HMGET', key.shop_session(token), 'for', 'parcel'))
  if not username then return nil end
  return perform('absorb', account_keys(username), {username, token, parcel})
end)

-- Whether something is new to an account: it may be told twice.
local function remember(account, what)
  local absorbed = redis.call('HGET', account, 'absorbed') or ''
  if absorbed:find(what, 1, true) then return false end
  redis.call('HSET', account, 'absorbed', (what .. ' ' .. absorbed):sub(1, ABSORBED * 37))
  return true
end

-- absorb: a guest's cart joins the account's, or that of the person's old name: quantities add up, to 999 at most.
-- KEYS account, cart, sessions
-- ARGV username, the guest's token or the parcel's name, 'item qty item qty …', the id of that cart if it has one
command('absorb', function(keys, args)
  local account, cart, sessions = unpack(keys)
  local username, name, parcel, id = unpack(args)
  if not remember(account, name) then return end
  if id and id ~= '' then redis.call('HSETNX', account, 'cart', id) end
  local lines = redis.call('HLEN', cart)
  for item, qty in parcel:gmatch('(%S+) (%S+)') do
    local there = redis.call('HGET', cart, item)
    if there or lines < MOST_MERGED then
      redis.call('HSET', cart, item, text(math.min((there or 0) + qty, MOST_PER_LINE)))
      if not there then lines = lines + 1 end
    end
  end
  mirror_all(sessions, username)
end)

-- Sets one line of a cart. Returns 'done', 'same' if that changed nothing, or 'full' if there is no room.
local function set_line(cart, item, qty)
  local before = redis.call('HGET', cart, item)
  if (before or '0') == qty then return 'same' end
  if not before and redis.call('HLEN', cart) >= MOST_LINES then return 'full' end
  if qty == '0' then redis.call('HDEL', cart, item) else redis.call('HSET', cart, item, qty) end
  return 'done'
end

local function with_lines(reply, cart)
  for _, part in ipairs(redis.call('HGETALL', cart)) do reply[#reply + 1] = part end
  return reply
end

-- cart: what a session wants to buy.   Reply {…, item, qty, …}
command('cart', function(keys, args)
  local reply, entered = enter(keys, args)
  return entered and with_lines(reply, keys[2]) or reply
end)

local function put_for(keys, username, item, qty)
  local how = set_line(keys[2], item, qty)
  if how == 'done' then mirror_all(keys[3], username) end
  return how
end

-- put: a quantity of an item in a session's cart; 0 for none.
-- KEYS session, cart, viewed   ARGV … item, qty
-- Reply {…, 'done', 'same' or 'full', item, qty, …}; {…, 'account'} on a cluster if the cart is a user's, see put_account
command('put', function(keys, args)
  local reply, entered = enter(keys, args)
  if not entered then return reply end
  local item, qty, user = args[6], args[7], reply[2]
  if user == '' then
    reply[5] = set_line(keys[2], item, qty)
    return with_lines(reply, keys[2])
  end
  if CLUSTERED then
    reply[5] = 'account'
    return reply
  end
  local keys_of_account = account_keys(user)
  reply[5] = put_for(keys_of_account, user, item, qty)
  return with_lines(reply, keys_of_account[2])
end)

-- put_account: a quantity of an item in a person's cart.
-- KEYS account, cart, sessions   ARGV username, item, qty
-- Reply {'done', 'same' or 'full', item, qty, …}; {} if they have no session any more: they have left or changed their name
command('put_account', function(keys, args)
  if redis.call('EXISTS', keys[3]) == 0 then return {} end
  return with_lines({put_for(keys, args[1], args[2], args[3])}, keys[2])
end)

-- The cart that is to be ordered: {id, id of the one ordered last, when, item, qty, …}
local function to_order(reply, owner, cart, id)
  redis.call('HSETNX', owner, 'cart', id)
  local current, last = unpack(redis.call('HMGET', owner, 'cart', 'last'))
  local last_id, when = (last or ''):match('^(%S+) (%S+)$')
  reply[#reply + 1] = current
  reply[#reply + 1] = last_id or ''
  reply[#reply + 1] = when or ''
  return with_lines(reply, cart)
end

-- check_out: a session orders its cart.
-- ARGV … an id for the cart if it has none yet   Reply {…, id, last, when, item, qty, …}; {…, 'account'} as of put
command('check_out', function(keys, args)
  local reply, entered = enter(keys, args)
  if not entered then return reply end
  local user = reply[2]
  if user == '' then return to_order(reply, keys[1], keys[2], args[6]) end
  if CLUSTERED then
    reply[5] = 'account'
    return reply
  end
  local keys_of_account = account_keys(user)
  return to_order(reply, keys_of_account[1], keys_of_account[2], args[6])
end)

-- check_out_account: the same for a person's cart.
-- KEYS account, cart, sessions   ARGV an id   Reply {id, last, when, item, qty, …}; {} as of put_account
command('check_out_account', function(keys, args)
  if redis.call('EXISTS', keys[3]) == 0 then return {} end
  return to_order({}, keys[1], keys[2], args[1])
end)

local function less(cart, item, qty)
  local left = (redis.call('HGET', cart, item) or 0) - qty
  if left > 0 then redis.call('HSET', cart, item, text(left)) else redis.call('HDEL', cart, item) end
end

-- Takes what was ordered out of a cart, once. What was added meanwhile stays, for the next order.
local function take_out(owner, cart, id, at, ordered)
  if redis.call('HGET', owner, 'cart') ~= id then return false end
  for i = 1, #ordered, 2 do less(cart, ordered[i], ordered[i + 1]) end
  redis.call('HDEL', owner, 'cart')
  redis.call('HSET', owner, 'last', id .. ' ' .. at)
  return true
end

-- ordered: a guest's cart has become an order.   KEYS session, cart, viewed   ARGV token, id, now_s, item, qty, …
command('ordered', function(keys, args)
  if not take_out(keys[1], keys[2], args[2], args[3], {unpack(args, 4)}) then return end
  -- The guest has logged in meanwhile: what was ordered went along to the account.
  if redis.call('HEXISTS', keys[1], 'for') == 1 then
    redis.call('HSET', keys[1], 'ordered', table.concat({unpack(args, 4)}, ' '))
    project('ordered_before', args[1], args[2])
  end
end)

-- ordered_before: what a guest's cart held that has become an order, although it came to the account.
projection('ordered_before', function(token, id)
  local username, ordered = unpack(redis.call('HMGET', key.shop_session(token), 'for', 'ordered'))
  if not ordered then return nil end
  return perform('return', account_keys(username), {username, id, ordered})
end)

-- return: takes out of a person's cart what was ordered before it came there, once.
-- KEYS account, cart, sessions   ARGV username, id of the guest's cart, 'item qty item qty …'
command('return', function(keys, args)
  local account, cart, sessions = unpack(keys)
  if not remember(account, args[2]) then return end
  for item, qty in args[3]:gmatch('(%S+) (%S+)') do less(cart, item, qty) end
  mirror_all(sessions, args[1])
end)

-- ordered_account: a person's has.   KEYS account, cart, sessions   ARGV username, id, now_s, item, qty, …
command('ordered_account', function(keys, args)
  if take_out(keys[1], keys[2], args[2], args[3], {unpack(args, 4)}) then mirror_all(keys[3], args[1]) end
end)

local function end_all(sessions, username)
  for _, token in ipairs(redis.call('ZRANGE', sessions, 0, -1)) do project('ended', username, token) end
  redis.call('DEL', sessions)
end

-- forget: a person leaves: nothing of theirs stays.
-- KEYS account, cart, sessions   ARGV username
command('forget', function(keys, args)
  end_all(keys[3], args[1])
  redis.call('DEL', keys[1], keys[2])
end)

-- pack: a person takes another name: their sessions end, and what is in their cart becomes a parcel, in one step, so that
-- nobody adds to a cart that has gone. It stays until `unpack`: asked again meanwhile, the same one is given.
-- KEYS account, cart, sessions   ARGV username, a name for the parcel
-- Reply '<name> <id of the cart, if it is being checked out> <item> <qty> …', or '' if there is nothing
command('pack', function(keys, args)
  local account, cart, sessions = unpack(keys)
  end_all(sessions, args[1])
  local parcel, id = unpack(redis.call('HMGET', account, 'parcel', 'cart'))
  if parcel then return parcel end
  local lines = redis.call('HGETALL', cart)
  redis.call('DEL', account, cart)
  if #lines == 0 then return '' end
  parcel = table.concat({args[2], id or '-', unpack(lines)}, ' ')
  redis.call('HSET', account, 'parcel', parcel)
  return parcel
end)

-- unpack: a parcel has arrived.   KEYS account   ARGV the parcel
command('unpack', function(keys, args)
  if redis.call('HGET', keys[1], 'parcel') == args[1] then redis.call('HDEL', keys[1], 'parcel') end
end)
