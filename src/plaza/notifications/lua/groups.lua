-- Groups: the actors of one type and subject, until the group is read. The owner is the recipient.
--
-- `about` is '<type>:<subject>'. A group is {number, the first actor's time, actors beyond the exact ones, the author of the
-- post that it is below (nil for none)}; its id is '<about>:<number>'. The groups of one `about` are in the order newest first.
--
-- KEYS of all commands and queries: notifications, then, where social runs, the recipient's profile and the sorted sets of
-- users whose activities the recipient does not see.

-- The groups that the running command has opened, with the number of their actors and the time of the latest; no time if it
-- must be read. They are in the lists from update_group() on.
local opened = {}

-- Returns the groups, and how they are stored.
local function read_groups(name, about)
  local stored = redis.call('HGET', key.notification_groups(name), about)
  return stored and cjson.decode(stored) or {}, stored
end

local function group_with(name, about, id)
  for _, group in ipairs(read_groups(name, about)) do
    if about .. ':' .. text(group[1]) == id then return group end
  end
end

local function write_groups(name, about, groups)
  if #groups == 0 then
    redis.call('HDEL', key.notification_groups(name), about)
  else
    redis.call('HSET', key.notification_groups(name), about, cjson.encode(groups))
  end
end

local function group_id(about, group) return about .. ':' .. text(group[1]) end

local function about_of(id) return id:match('^(.+):%d+$') end

local function actors_of(name, about, group) return key.notification_actors(name, group_id(about, group)) end

local function updated_at(name, about, group)
  return tonumber(redis.call('ZSCORE', key.notifications(name), group_id(about, group)) or 0)
end

local function is_unread(name, about, group)
  return opened[group] ~= nil or redis.call('ZSCORE', key.notifications_unread(name), group_id(about, group)) ~= false
end

local function remove_keys(name, id)
  redis.call('ZREM', key.notifications(name), id)
  redis.call('ZREM', key.notifications_unread(name), id)
  redis.call('UNLINK', key.notification_actors(name, id))
end

-- What happened until this time is not shown again.
local function dismiss_until(name, about, at)
  local dismissed = key.notifications_dismissed(name)
  redis.call('ZADD', dismissed, 'GT', text(at), about)
  redis.call('ZREMRANGEBYRANK', dismissed, 0, -MAX_GROUPS - 1)
end

local function dismiss_group(name, id)
  local at, about = redis.call('ZSCORE', key.notifications(name), id), about_of(id)
  if not at then return false end
  local left = {}
  for _, group in ipairs(read_groups(name, about)) do
    if group_id(about, group) ~= id then left[#left + 1] = group end
  end
  write_groups(name, about, left)
  dismiss_until(name, about, at)
  remove_keys(name, id)
  return true
end

local function drop_oldest(name)
  while redis.call('ZCARD', key.notifications(name)) > MAX_GROUPS do
    dismiss_group(name, redis.call('ZRANGE', key.notifications(name), 0, 0)[1])
  end
end

local function put_in_lists(name, id, at, is_new)
  redis.call('ZADD', key.notifications(name), at, id)
  if is_new then
    redis.call('ZADD', key.notifications_unread(name), at, id)
  else
    redis.call('ZADD', key.notifications_unread(name), 'XX', at, id)
  end
end

-- Makes the lists follow a group's actors, and removes the group if it is empty.
local function update_group(name, about, groups, group)
  local id, actors, new = group_id(about, group), actors_of(name, about, group), opened[group]
  if new and new.latest then return put_in_lists(name, id, text(new.latest), true) end
  local excess = redis.call('ZCARD', actors) - MAX_ACTORS
  if excess > 0 then
    redis.call('ZREMRANGEBYRANK', actors, 0, excess - 1)
    group[3] = group[3] + excess
  end
  local latest = redis.call('ZRANGE', actors, -1, -1, 'WITHSCORES')
  if #latest > 0 then return put_in_lists(name, id, latest[2], new ~= nil) end
  if group[3] > 0 and IS_COUNTED[about:match('^[a-z_]+')] then return end -- the caller fills it
  remove_keys(name, id)
  for i, each in ipairs(groups) do
    if each == group then table.remove(groups, i) end
  end
end

local function open_group(name, about, groups, at)
  local group = {groups[1] and groups[1][1] + 1 or 1, at, 0}
  table.insert(groups, 1, group)
  opened[group] = {actors = 0, latest = at}
  if #groups > MAX_OF_SUBJECT then
    local oldest = table.remove(groups)
    dismiss_until(name, about, updated_at(name, about, oldest))
    remove_keys(name, group_id(about, oldest))
  end
  return group
end

-- Returns the group for an activity of this time. One that is older than what was read belongs to what was read. Only the
-- newest group can be unread.
local function group_for(name, about, groups, at, renamed)
  local open = groups[1] and is_unread(name, about, groups[1]) and groups[1]
  for i = #groups, open and 2 or 1, -1 do
    local updated = updated_at(name, about, groups[i])
    if at < updated or (renamed and at == updated) then return groups[i] end
  end
  return open or open_group(name, about, groups, at)
end

-- Returns the sorted sets of users that the recipient does not hear of; usually there are none.
local function hiding_sets(keys)
  local sets = {}
  for i = 3, #keys do
    if redis.call('EXISTS', keys[i]) == 1 then sets[#sets + 1] = keys[i] end
  end
  return sets
end

local function is_in_any(sets, actor)
  for _, set in ipairs(sets) do
    if redis.call('ZSCORE', set, actor) then return true end
  end
  return false
end

-- Returns what the recipient accepts; nothing if there is no such user.
local function accepted(keys, name, about)
  if keys[2] and redis.call('EXISTS', keys[2]) == 0 then return nil end
  local preference = redis.call('HGET', key.notification_preferences(name), about:match('^[a-z_]+')) or ''
  local from, to = preference:match('(%d+)%-?(%d*)')
  local dismissed = redis.call('ZSCORE', key.notifications_dismissed(name), about)
  return {
    floor = tonumber(dismissed or -1),
    is_off = preference:sub(1, 3) == 'off',
    off_from = tonumber(from) or math.huge,
    off_to = tonumber(to) or math.huge,
  }
end

local function find_actor(name, about, groups, actor)
  for _, group in ipairs(groups) do
    local since = redis.call('ZSCORE', actors_of(name, about, group), actor)
    if since then return group, tonumber(since) end
  end
end

-- Adds an actor to a group. A full group has counted those before its exact actors.
local function add_actor(name, about, group, actor, at)
  local actors, new = actors_of(name, about, group), opened[group]
  if new and new.latest and new.actors < MAX_ACTORS then
    new.actors, new.latest = new.actors + 1, math.max(new.latest, at)
  elseif redis.call('ZCARD', actors) >= MAX_ACTORS then
    if new then new.latest = nil end
    local lowest = redis.call('ZRANGE', actors, 0, 0, 'WITHSCORES')
    if at < tonumber(lowest[2]) then return false end
  end
  redis.call('ZADD', actors, text(at), actor)
  group[2] = math.min(group[2], at)
  return true
end

-- Sets one actor present since `at`, or absent without it. Returns the groups that it changed. `accepts` has the time until
-- which activities were dismissed (`floor`), and when the type was turned off. What happened while it was off is never told,
-- also not by a rebuild. Users who are hidden are added: the queries leave them out while they are hidden.
local function set_actor(accepts, name, about, groups, actor, at, renamed)
  local group, since = find_actor(name, about, groups, actor)
  if group and since == at then return {} end
  if group and opened[group] then opened[group].latest = nil end
  if not at then
    if group then redis.call('ZREM', actors_of(name, about, group), actor) end
    return {group}
  end
  local is_refused = at >= accepts.off_from and at < accepts.off_to
  if group and not is_refused and (at < since or is_unread(name, about, group)) then
    redis.call('ZADD', actors_of(name, about, group), text(at), actor)
    return {group}
  end
  if group then redis.call('ZREM', actors_of(name, about, group), actor) end
  if is_refused or accepts.is_off or at <= accepts.floor then return {group} end
  local target = group_for(name, about, groups, at, renamed)
  if not add_actor(name, about, target, actor, at) then return {group} end
  return {target, group}
end

-- record: set which actors are in the groups of a type and subject, as source data says.
-- ARGV name, about, author of the post that it is below ('' for none or as it was), then per actor: actor, time ('' if
-- absent), '1' if known under another name
-- Reply {changed actors, 1 if there is a group now, then of each group with more than the exact actors: number, from, to ('' for no end)}
command('record', function(keys, args)
  local name, about, changed, touched, is_missing = args[1], args[2], 0, {}, false
  opened = {}
  local groups, stored = read_groups(name, about)
  local accepts -- false if there is no such user; read for an actor who is present
  for i = 4, #args, 3 do
    local at = tonumber(args[i + 1])
    if at and accepts == nil then accepts = accepted(keys, name, about) or false end
    if accepts or not at then
      local found = set_actor(accepts, name, about, groups, args[i], at, args[i + 2] == '1')
      if next(found) then changed = changed + 1 else is_missing = is_missing or not at end
      for _, group in pairs(found) do touched[group] = true end
    end
  end
  for group in pairs(touched) do update_group(name, about, groups, group) end
  for _, group in ipairs(groups) do group[4] = args[3] ~= '' and args[3] or group[4] end
  if #groups == 0 or cjson.encode(groups) ~= stored then write_groups(name, about, groups) end
  if next(opened) then drop_oldest(name) end
  local reply = {changed, #groups > 0 and 1 or 0}
  for i, group in ipairs(groups) do
    if group[3] > 0 and (touched[group] or is_missing) then
      for _, word in ipairs({group[1], group[2], groups[i - 1] and groups[i - 1][2] or ''}) do
        reply[#reply + 1] = text(word)
      end
    end
  end
  return reply
end)

-- fill: replace the actors of a group with the latest of the source data.
-- ARGV name, about, number, all actors who are not hidden, then actor, time, …
command('fill', function(keys, args)
  local name, about = args[1], args[2]
  local groups = read_groups(name, about)
  for _, group in ipairs(groups) do
    if text(group[1]) == args[3] then
      local actors, hiding, scored, shown = actors_of(name, about, group), hiding_sets(keys), {}, 0
      for i = 5, #args, 2 do
        scored[#scored + 1], scored[#scored + 2] = args[i + 1], args[i]
        if not is_in_any(hiding, args[i]) then shown = shown + 1 end
      end
      redis.call('UNLINK', actors)
      if #scored > 0 then redis.call('ZADD', actors, unpack(scored)) end
      group[3] = math.max(0, tonumber(args[4]) - shown)
      update_group(name, about, groups, group)
      break
    end
  end
  write_groups(name, about, groups)
end)

-- drop: remove the groups of a subject that cannot be seen any more. If it comes back, what was read does not.
-- ARGV name, about
command('drop', function(keys, args)
  local name, about = args[1], args[2]
  for _, group in ipairs(read_groups(name, about)) do
    if not is_unread(name, about, group) then dismiss_until(name, about, updated_at(name, about, group)) end
    remove_keys(name, group_id(about, group))
  end
  write_groups(name, about, {})
end)
