-- What the recipient does: read, dismiss, choose.

-- Returns how many actors of a group the recipient may see, and the latest three.
local function visible_actors(keys, actors)
  local hidden = 0
  for i = 3, #keys do hidden = hidden + redis.call('ZINTERCARD', 2, actors, keys[i]) end
  if hidden == 0 then return redis.call('ZCARD', actors), redis.call('ZREVRANGE', actors, 0, 2) end
  local left, latest = redis.call('ZDIFF', #keys - 1, actors, unpack(keys, 3)), {}
  for i = #left, math.max(1, #left - 2), -1 do latest[#latest + 1] = left[i] end
  return #left, latest
end

-- Whether a group is below a post of a user that a block hides.
local function is_below_hidden(keys, group)
  local owner = group and group[4]
  return owner and keys[4] and is_in_any({keys[3], keys[4]}, owner)
end

-- Returns how many actors of a notification the recipient may see, and the latest three.
local function shown_actors(keys, name, id)
  local group = group_with(name, about_of(id), id)
  if is_below_hidden(keys, group) then return 0, {} end
  local count, latest = visible_actors(keys, key.notification_actors(name, id))
  if count > 0 and group then count = count + group[3] end
  return count, latest
end

local function count_unread(keys, name)
  local unread = key.notifications_unread(name)
  if #hiding_sets(keys) == 0 then return redis.call('ZCARD', unread) end
  local count = 0
  for _, id in ipairs(redis.call('ZRANGE', unread, 0, -1)) do
    if shown_actors(keys, name, id) > 0 then count = count + 1 end
  end
  return count
end

-- unread: count the unread notifications.   ARGV name
query('unread', function(keys, args) return count_unread(keys, args[1]) end)

-- page: read notifications after a position, the latest first.
-- ARGV name, 'all' or 'unread', count, score ('' from the start), group
-- Reply {unread, then of each: {group, time, 1 if read, actors, the latest three}}
query('page', function(keys, args)
  local name, set = args[1], key.notifications(args[1])
  if args[2] == 'unread' then set = key.notifications_unread(name) end
  local reply = {count_unread(keys, name)}
  local rows = members_after(set, args[4], args[5], tonumber(args[3]), true)
  for i = 1, #rows, 2 do
    local id = rows[i]
    local count, latest = shown_actors(keys, name, id)
    local is_read = redis.call('ZSCORE', key.notifications_unread(name), id) and 0 or 1
    reply[#reply + 1] = {id, rows[i + 1], is_read, count, latest}
  end
  return reply
end)

-- read: mark notifications as read.   ARGV name, time until which ('' for the named ones), group, …
-- Reply {how many, how many are left}
command('read', function(keys, args)
  local name, unread = args[1], key.notifications_unread(args[1])
  local count = 0
  if args[2] ~= '' then
    count = redis.call('ZREMRANGEBYSCORE', unread, '-inf', args[2])
  elseif #args > 2 then
    count = redis.call('ZREM', unread, unpack(args, 3))
  end
  return {count, count_unread(keys, name)}
end)

-- dismiss: remove a notification for good.   ARGV name, group   Reply 1, or 0 if there is none
command('dismiss', function(keys, args) return dismiss_group(args[1], args[2]) and 1 or 0 end)

-- prefer: turn types on or off, and remember when.   ARGV name, then type, '1' or '0', …
command('prefer', function(keys, args)
  local preferences, now = key.notification_preferences(args[1]), text(clock_ms())
  for i = 2, #args, 2 do
    local type, is_on = args[i], args[i + 1] == '1'
    local since = (redis.call('HGET', preferences, type) or ''):match('^off:(%d+)')
    if is_on and since then
      redis.call('HSET', preferences, type, since .. '-' .. now)
    elseif not is_on and not since then
      redis.call('HSET', preferences, type, 'off:' .. now)
    end
  end
end)
