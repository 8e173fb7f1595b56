-- Carts. A guest's cart is `cart:<token>`. A user's cart belongs to the account, and `cart:<token>` of each of the user's
-- sessions is a copy. KEYS of a session are session, cart, viewed; of an account: account, cart, sessions.

local function account_keys(username)
  return {key.account(username), key.account_cart(username), key.user_session_tokens(username)}
end

-- cart_copy: the copy of the account's cart in a session.
projection('cart_copy', function(username, token)
  local lines = redis.call('HGETALL', key.account_cart(username))
  return perform('copy_cart', session_keys(token), {username, unpack(lines)})
end)

local function copy_to_all_sessions(sessions, username)
  for _, token in ipairs(redis.call('ZRANGE', sessions, 0, -1)) do project('cart_copy', username, token) end
end

-- copy_cart: replace the cart of a session by the account's.   ARGV username, item, qty, …
command('copy_cart', function(keys, args)
  local user, moved = unpack(redis.call('HMGET', keys[1], 'user', 'moved'))
  if user ~= args[1] or moved then return end -- it has ended, or belongs to another user
  redis.call('DEL', keys[2])
  if #args > 1 then redis.call('HSET', keys[2], unpack(args, 2)) end
end)

on_admit[#on_admit + 1] = function(username, token)
  if redis.call('EXISTS', key.account_cart(username)) == 1 then project('cart_copy', username, token) end
end

-- handed_over: adds a guest's cart to the account's at login.
projection('handed_over', function(token)
  local username, lines = unpack(redis.call('HMGET', key.session_state(token), 'for', 'parcel'))
  if not username then return nil end
  return perform('merge_cart', account_keys(username), {username, token, lines})
end)

-- A guest's cart goes to the account. Returns the id of that cart if its checkout has begun.
on_replace[#on_replace + 1] = function(keys, change)
  local session, cart = keys[1], keys[2]
  local checkout_id = redis.call('HGET', session, 'cart')
  if change.user == '' then
    redis.call('HSET', session, 'for', change.username, 'parcel', table.concat(redis.call('HGETALL', cart), ' '))
    project('handed_over', change.token)
  end
  redis.call('DEL', cart)
  return checkout_id
end

-- Remembers a merge in the account. Returns false if it was done before: a projection may run twice.
local function remember_merge(account, id)
  local merged = redis.call('HGET', account, 'absorbed') or ''
  if merged:find(id, 1, true) then return false end
  redis.call('HSET', account, 'absorbed', (id .. ' ' .. merged):sub(1, MAX_MERGES * 37))
  return true
end

-- merge_cart: add a guest's cart, or that of the user's previous name, to the account's. Quantities add up, to MAX_QUANTITY.
-- KEYS account, cart, sessions
-- ARGV username, merge id (the guest's token), 'item qty item qty …', the id of that cart if its checkout has begun
command('merge_cart', function(keys, args)
  local account, cart, sessions = unpack(keys)
  local username, merge_id, added, checkout_id = unpack(args)
  if not remember_merge(account, merge_id) then return end
  if checkout_id and checkout_id ~= '' then redis.call('HSETNX', account, 'cart', checkout_id) end
  local lines = redis.call('HLEN', cart)
  for item, qty in added:gmatch('(%S+) (%S+)') do
    local current = redis.call('HGET', cart, item)
    if current or lines < MAX_MERGED_LINES then
      redis.call('HSET', cart, item, text(math.min((current or 0) + qty, MAX_QUANTITY)))
      if not current then lines = lines + 1 end
    end
  end
  copy_to_all_sessions(sessions, username)
end)

-- Sets one line of a cart. Returns 'done', 'same' if nothing changed, or 'full' if the cart has too many lines.
local function set_line(cart, item, qty)
  local current = redis.call('HGET', cart, item)
  if (current or '0') == qty then return 'same' end
  if not current and redis.call('HLEN', cart) >= MAX_LINES then return 'full' end
  if qty == '0' then redis.call('HDEL', cart, item) else redis.call('HSET', cart, item, qty) end
  return 'done'
end

local function append_lines(reply, cart)
  for _, part in ipairs(redis.call('HGETALL', cart)) do reply[#reply + 1] = part end
  return reply
end

-- cart: read the cart of a session.   Reply {…, item, qty, …}
command('cart', function(keys, args)
  local reply, entered = enter(keys, args)
  return entered and append_lines(reply, keys[2]) or reply
end)

local function set_account_line(keys, username, item, qty)
  local result = set_line(keys[2], item, qty)
  if result == 'done' then copy_to_all_sessions(keys[3], username) end
  return result
end

-- put_line: set the quantity of an item in a session's cart; 0 removes it.   ARGV … item, qty
-- Reply {…, result of set_line, item, qty, …}; {…, 'account'} on a cluster if the cart belongs to an account: see
-- put_account_line
command('put_line', function(keys, args)
  local reply, entered = enter(keys, args)
  if not entered then return reply end
  local item, qty, user = args[9], args[10], reply[2]
  if user == '' then
    reply[5] = set_line(keys[2], item, qty)
    return append_lines(reply, keys[2])
  end
  if CLUSTERED then
    reply[5] = 'account'
    return reply
  end
  local account = account_keys(user)
  reply[5] = set_account_line(account, user, item, qty)
  return append_lines(reply, account[2])
end)

-- put_account_line: set the quantity of an item in a user's cart.
-- KEYS account, cart, sessions   ARGV username, item, qty
-- Reply {result of set_line, item, qty, …}; {} if the user has no session: the account was deleted or renamed
command('put_account_line', function(keys, args)
  if redis.call('EXISTS', keys[3]) == 0 then return {} end
  return append_lines({set_account_line(keys, args[1], args[2], args[3])}, keys[2])
end)

-- delete_account: a user leaves. Nothing of the account stays.   KEYS account, cart, sessions   ARGV username
command('delete_account', function(keys, args)
  end_user_sessions(keys[3], args[1])
  redis.call('DEL', keys[1], keys[2])
end)

-- pack_cart: a user is renamed. The sessions end and the cart becomes a parcel, in one step, so that no line is added to the
-- old cart. The parcel stays until delete_parcel; a second call returns the same one.
-- KEYS account, cart, sessions   ARGV username, merge id
-- Reply '<merge id> <id of the cart if its checkout has begun, else -> <item> <qty> …', or '' if the cart is empty
command('pack_cart', function(keys, args)
  local account, cart, sessions = unpack(keys)
  end_user_sessions(sessions, args[1])
  local parcel, checkout_id = unpack(redis.call('HMGET', account, 'parcel', 'cart'))
  if parcel then return parcel end
  local lines = redis.call('HGETALL', cart)
  redis.call('DEL', account, cart)
  if #lines == 0 then return '' end
  parcel = table.concat({args[2], checkout_id or '-', unpack(lines)}, ' ')
  redis.call('HSET', account, 'parcel', parcel)
  return parcel
end)

-- delete_parcel: the new account has the parcel.   KEYS account   ARGV parcel
command('delete_parcel', function(keys, args)
  if redis.call('HGET', keys[1], 'parcel') == args[1] then redis.call('HDEL', keys[1], 'parcel') end
end)
