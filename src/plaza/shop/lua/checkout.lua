-- Checkout. A cart has an id from the start of its checkout until the ordered lines are removed. The order has the same id.

-- Appends {id, id of the cart ordered last, when, item, qty, …} to a reply.
local function append_checkout(reply, owner, cart, new_id)
  redis.call('HSETNX', owner, 'cart', new_id)
  local id, last = unpack(redis.call('HMGET', owner, 'cart', 'last'))
  local last_id, last_at = (last or ''):match('^(%S+) (%S+)$')
  reply[#reply + 1] = id
  reply[#reply + 1] = last_id or ''
  reply[#reply + 1] = last_at or ''
  return append_lines(reply, cart)
end

-- start_checkout: begin to order the cart of a session.   ARGV … an id for the cart if it has none
-- Reply {…, id, last id, last time, item, qty, …}; on a cluster, if the cart belongs to an account, {…, 'account', '1' if changes
-- by another service may not have reached the account}
command('start_checkout', function(keys, args)
  local reply, entered = enter(keys, args)
  if not entered then return reply end
  local user = reply[2]
  if user == '' then return append_checkout(reply, keys[1], keys[2], args[9]) end
  local is_pending = has_pending_updates()
  take_changes(keys, args[1], user)
  if CLUSTERED then
    reply[5], reply[6] = 'account', is_pending and '1' or ''
    return reply
  end
  local account = account_keys(user)
  return append_checkout(reply, account[1], account[2], args[9])
end)

-- start_account_checkout: begin to order a user's cart.
-- KEYS account, cart, sessions   ARGV an id   Reply as of start_checkout; {} if the user has no session
command('start_account_checkout', function(keys, args)
  if redis.call('EXISTS', keys[3]) == 0 then return {} end
  return append_checkout({}, keys[1], keys[2], args[1])
end)

local function subtract(cart, item, qty)
  local left = (tonumber(redis.call('HGET', cart, item) or 0) or 0) - qty
  if left > 0 then redis.call('HSET', cart, item, text(left)) else redis.call('HDEL', cart, item) end
end

-- Removes the ordered lines from a cart, once. Lines that were added meanwhile stay for the next order.
local function remove_ordered(owner, cart, id, at, ordered)
  if redis.call('HGET', owner, 'cart') ~= id then return false end
  for i = 1, #ordered, 2 do subtract(cart, ordered[i], ordered[i + 1]) end
  redis.call('HDEL', owner, 'cart')
  redis.call('HSET', owner, 'last', id .. ' ' .. at)
  return true
end

-- finish_checkout: a guest's cart was ordered.   KEYS of a session   ARGV token, id, now_s, item, qty, …
command('finish_checkout', function(keys, args)
  if not remove_ordered(keys[1], keys[2], args[2], args[3], {unpack(args, 4)}) then return end
  -- The guest has logged in meanwhile, and the ordered lines were merged into the account's cart.
  if redis.call('HEXISTS', keys[1], 'for') == 1 then
    redis.call('HSET', keys[1], 'ordered', table.concat({unpack(args, 4)}, ' '))
    project('ordered_before', args[1], args[2])
  end
end)

-- ordered_before: removes from the account's cart what was ordered before the merge.
projection('ordered_before', function(token, id)
  local username, ordered = unpack(redis.call('HMGET', key.session_state(token), 'for', 'ordered'))
  if not ordered then return nil end
  return perform('remove_merged', account_keys(username), {username, id, ordered})
end)

-- remove_merged: remove lines from a user's cart that were ordered before the merge, once.
-- KEYS account, cart, sessions   ARGV username, id of the guest's cart, 'item qty item qty …'
command('remove_merged', function(keys, args)
  local account, cart, sessions = unpack(keys)
  if not remember_merge(account, args[2]) then return end
  for item, qty in args[3]:gmatch('(%S+) (%S+)') do subtract(cart, item, qty) end
  copy_to_all_sessions(sessions, args[1])
end)

-- finish_account_checkout: a user's cart was ordered.   KEYS account, cart, sessions   ARGV username, id, now_s, item, qty, …
command('finish_account_checkout', function(keys, args)
  if remove_ordered(keys[1], keys[2], args[2], args[3], {unpack(args, 4)}) then copy_to_all_sessions(keys[3], args[1]) end
end)
