-- Carts. A guest's cart is `cart:<token>`. A user's cart belongs to the account, and `cart:<token>` of each of the user's
-- sessions is a copy. KEYS of a session are session, cart, viewed; of an account: account, cart, sessions.
--
-- `cart:<token>` is source data; other services write it by the document. `shown` of the session has the lines that Plaza
-- copied there last. What differs from them is a change by another service, and the account's cart follows it.

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

local function as_table(flat)
  local lines = {}
  for i = 1, #flat, 2 do lines[flat[i]] = flat[i + 1] end
  return lines
end

-- Returns what another service has changed in the cart of a user's session: {item, qty or '0', …}
local function changed_lines(session, cart)
  local shown = redis.call('HGET', session, 'shown')
  if not shown then return {} end -- the session is older than this field
  shown = as_table(cjson.decode(shown))
  local current, changed = as_table(redis.call('HGETALL', cart)), {}
  for item, qty in pairs(current) do
    if shown[item] ~= qty then
      changed[#changed + 1] = item
      changed[#changed + 1] = qty
    end
  end
  for item in pairs(shown) do
    if not current[item] then
      changed[#changed + 1] = item
      changed[#changed + 1] = '0'
    end
  end
  return changed
end

local function set_lines(cart, lines)
  for i = 1, #lines, 2 do
    if lines[i + 1] == '0' then
      redis.call('HDEL', cart, lines[i])
    else
      redis.call('HSET', cart, lines[i], lines[i + 1])
    end
  end
end

-- Returns the lines of a cart as {item, qty, …}. A line with spaces, which another service may have written, is left out: the
-- lines are stored in a text that spaces separate.
local function lines_without_spaces(cart)
  local lines, flat = {}, redis.call('HGETALL', cart)
  for i = 1, #flat, 2 do
    if not (flat[i] .. flat[i + 1]):find('%s') and flat[i] ~= '' and flat[i + 1] ~= '' then
      lines[#lines + 1] = flat[i]
      lines[#lines + 1] = flat[i + 1]
    end
  end
  return lines
end

-- From now on every change of the session's cart counts.
on_sign_in[#on_sign_in + 1] = function(keys) redis.call('HSET', keys[1], 'shown', '[]') end

-- copy_cart: replace the cart of a session by the account's. Changes by another service that the account does not have yet stay.
-- ARGV username, item, qty, …
command('copy_cart', function(keys, args)
  local user, moved = unpack(redis.call('HMGET', keys[1], 'user', 'moved'))
  if user ~= args[1] or moved then return end -- it has ended, or belongs to another user
  local changed = changed_lines(keys[1], keys[2])
  redis.call('DEL', keys[2])
  if #args > 1 then redis.call('HSET', keys[2], unpack(args, 2)) end
  redis.call('HSET', keys[1], 'shown', cjson.encode({unpack(args, 2)}))
  set_lines(keys[2], changed)
end)

-- Adds what another service has changed in the cart of a session to the account's cart. Returns whether there is anything.
local function take_changes(keys, token, username)
  local changed = changed_lines(keys[1], keys[2])
  if #changed == 0 then return false end
  redis.call('HSET', keys[1], 'shown', cjson.encode(redis.call('HGETALL', keys[2])))
  if not CLUSTERED then
    local account = account_keys(username)
    set_lines(account[2], changed)
    copy_to_all_sessions(account[3], username)
    return true
  end
  -- The account is on another node. The last batches stay in the session, so that none is lost before it is applied.
  local batches = cjson.decode(redis.call('HGET', keys[1], 'changes') or '[]')
  local batch = next_number(redis.call('HGET', keys[1], 'batch'))
  batches[#batches + 1] = {token .. ':' .. batch, changed}
  while #batches > MAX_CHANGE_BATCHES do table.remove(batches, 1) end
  redis.call('HSET', keys[1], 'batch', batch, 'changes', cjson.encode(batches))
  project('cart_changed', token)
  return true
end

-- cart_changed: adds changes by another service to the account's cart.
projection('cart_changed', function(token)
  local username, batches = unpack(redis.call('HMGET', key.session_state(token), 'user', 'changes'))
  if not batches or username == '' then return nil end
  return perform('apply_changes', account_keys(username), {username, batches})
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
    redis.call('HSET', session, 'for', change.username, 'parcel', table.concat(lines_without_spaces(cart), ' '))
    project('handed_over', change.token)
  else
    take_changes(keys, change.token, change.user)
  end
  redis.call('DEL', cart)
  return checkout_id
end

-- Remembers a merge in the account. Returns false if it was done before: a projection may run twice.
local function remember_merge(account, id)
  local merged = redis.call('HGET', account, 'absorbed') or ''
  if merged:find(id, 1, true) then return false end
  redis.call('HSET', account, 'absorbed', (id .. ' ' .. merged):sub(1, MAX_MERGES * 40))
  return true
end

-- apply_changes: set lines of the account's cart that another service has changed in a session, each batch once.
-- KEYS account, cart, sessions   ARGV username, batches as JSON: [[id, [item, qty, …]], …]
command('apply_changes', function(keys, args)
  for _, batch in ipairs(cjson.decode(args[2])) do
    if remember_merge(keys[1], batch[1]) then set_lines(keys[2], batch[2]) end
  end
  copy_to_all_sessions(keys[3], args[1])
end)

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
    local before, more = tonumber(current or 0), tonumber(qty)
    if not current and lines < MAX_MERGED_LINES then
      redis.call('HSET', cart, item, qty)
      lines = lines + 1
    elseif current and before and more then -- a quantity that cannot be read stays
      redis.call('HSET', cart, item, text(math.max(before, math.min(before + more, MAX_QUANTITY))))
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
  if not entered then return reply end
  if reply[2] ~= '' then take_changes(keys, args[1], reply[2]) end
  return append_lines(reply, keys[2])
end)

-- `token`: a session that may not be among the user's yet, because another service has just signed them in.
local function set_account_line(keys, username, item, qty, token)
  local result = set_line(keys[2], item, qty)
  if result == 'done' then
    copy_to_all_sessions(keys[3], username)
    if token and not redis.call('ZSCORE', keys[3], token) then project('cart_copy', username, token) end
  end
  return result
end

-- put_line: set the quantity of an item in a session's cart; 0 removes it.   ARGV … item, qty
-- Reply {…, result of set_line, item, qty, …}; on a cluster, if the cart belongs to an account, {…, 'account', '1' if changes by
-- another service may not have reached the account}: see put_account_line
command('put_line', function(keys, args)
  local reply, entered = enter(keys, args)
  if not entered then return reply end
  local item, qty, user = args[9], args[10], reply[2]
  if user == '' then
    reply[5] = set_line(keys[2], item, qty)
    return append_lines(reply, keys[2])
  end
  local is_changed = take_changes(keys, args[1], user)
  if CLUSTERED then
    reply[5], reply[6] = 'account', (is_changed or has_pending_updates()) and '1' or ''
    return reply
  end
  local account = account_keys(user)
  reply[5] = set_account_line(account, user, item, qty, args[1])
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

-- detach_cart: a user is renamed. In one step the sessions end and the cart moves to the field `parcel`, so that no line
-- is added to the old cart. The field stays until delete_detached_cart; a second call returns the same cart.
-- KEYS account, cart, sessions   ARGV username, merge id
-- Reply '<merge id> <id of the cart if its checkout has begun, else -> <item> <qty> …', or '' if the cart is empty
command('detach_cart', function(keys, args)
  local account, cart, sessions = unpack(keys)
  end_user_sessions(sessions, args[1])
  local detached, checkout_id = unpack(redis.call('HMGET', account, 'parcel', 'cart'))
  if detached then return detached end
  local lines = lines_without_spaces(cart)
  redis.call('DEL', account, cart)
  if #lines == 0 then return '' end
  detached = table.concat({args[2], checkout_id or '-', unpack(lines)}, ' ')
  redis.call('HSET', account, 'parcel', detached)
  return detached
end)

-- delete_detached_cart: the new account has the cart.   KEYS account   ARGV detached cart
command('delete_detached_cart', function(keys, args)
  if redis.call('HGET', keys[1], 'parcel') == args[1] then redis.call('HDEL', keys[1], 'parcel') end
end)
