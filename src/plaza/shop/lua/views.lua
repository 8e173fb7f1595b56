-- Items that a session has viewed: `viewed:<token>`. KEYS of a session are session, cart, viewed.

data_keys[1], data_keys[2] = key.cart, key.viewed_items

local function trim_viewed(viewed)
  redis.call('ZREMRANGEBYRANK', viewed, 0, -MAX_VIEWED_ITEMS - 1)
end

-- viewed: list the items that a session has viewed, newest first.   Reply {…, item, time, …}
command('viewed', function(keys, args)
  local reply, entered = enter(keys, args)
  if not entered then return reply end
  for _, part in ipairs(redis.call('ZRANGE', keys[3], 0, -1, 'REV', 'WITHSCORES')) do reply[#reply + 1] = part end
  return reply
end)

-- view: add an item to those that a session has viewed; on one server, also count the view.   ARGV … item
command('view', function(keys, args)
  local reply, entered = enter(keys, args)
  local item = args[9]
  if entered then
    redis.call('ZADD', keys[3], args[2], item)
    trim_viewed(keys[3])
  end
  if not CLUSTERED and (entered or reply[1] == 'replaced') then redis.call('ZINCRBY', ITEM_VIEWS, -1, item) end
  return reply
end)

-- viewed_before: what a replaced session had viewed, added to the new session.
projection('viewed_before', function(token)
  local new_token = redis.call('HGET', key.session_state(token), 'to')
  local viewed = redis.call('ZRANGE', key.viewed_items(token), 0, -1, 'WITHSCORES')
  if not new_token or #viewed == 0 then return nil end
  local args = {}
  for i = 1, #viewed, 2 do
    args[i], args[i + 1] = viewed[i + 1], viewed[i]
  end
  return perform('add_viewed', session_keys(new_token), args)
end)

-- add_viewed: add items that a session viewed under another token.   ARGV time, item, …
command('add_viewed', function(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return end
  redis.call('ZADD', keys[3], 'GT', unpack(args))
  trim_viewed(keys[3])
end)

on_replace[#on_replace + 1] = function(keys, change)
  if not change.keeps_data then
    redis.call('DEL', keys[3])
    return
  end
  redis.call('PEXPIRE', keys[3], REPLACED_MS)
  project('viewed_before', change.token)
end
