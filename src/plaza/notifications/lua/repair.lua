-- Repair commands, called by the audit.

-- repair_notifications: the lists follow the actors; what belongs to no group goes.   KEYS notifications   ARGV now_ms, name
command('repair_notifications', function(keys, args)
  local name, known = args[2], {}
  for _, about in ipairs(redis.call('HKEYS', key.notification_groups(name))) do
    local is_valid, groups = pcall(read_groups, name, about)
    if not is_valid then groups = {} end
    for _, group in ipairs({unpack(groups)}) do
      update_group(name, about, groups, group)
    end
    for _, group in ipairs(groups) do known[group_id(about, group)] = true end
    write_groups(name, about, groups)
  end
  for _, set in ipairs({keys[1], key.notifications_unread(name)}) do
    for _, id in ipairs(redis.call('ZRANGE', set, 0, -1)) do
      if not known[id] then remove_keys(name, id) end
    end
  end
  for _, id in ipairs(redis.call('ZRANGE', key.notifications_unread(name), 0, -1)) do
    redis.call('ZADD', key.notifications_unread(name), redis.call('ZSCORE', keys[1], id), id)
  end
end)

-- repair_notification: remove the actors of a notification that is not in the list.
-- KEYS notifications   ARGV now_ms, name, notification
command('repair_notification', function(keys, args)
  if not redis.call('ZSCORE', keys[1], args[3]) then remove_keys(args[2], args[3]) end
end)
