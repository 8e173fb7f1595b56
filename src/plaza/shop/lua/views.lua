-- Items that a session has viewed, and how often each item is viewed.

-- viewed: list the items that a session has viewed, newest first.   Reply {…, item, time, …}
command('viewed', function(keys, args)
  local reply, entered = enter(keys, args)
  if not entered then return reply end
  for _, part in ipairs(redis.call('ZRANGE', keys[3], 0, -1, 'REV', 'WITHSCORES')) do reply[#reply + 1] = part end
  return reply
end)

-- view: add an item to those that a session has viewed; on one server, also count the view.
-- KEYS session, cart, viewed   ARGV … item
command('view', function(keys, args)
  local reply, entered = enter(keys, args)
  local item = args[6]
  if entered then
    redis.call('ZADD', keys[3], args[2], item)
    trim_viewed(keys[3])
  end
  if not CLUSTERED and (entered or reply[1] == 'moved') then redis.call('ZINCRBY', ITEM_VIEWS, -1, item) end
  return reply
end)
