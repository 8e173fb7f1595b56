-- The entries of a user.

-- notes_add: add an entry to a user's list. Adding it again changes nothing.
-- KEYS notes   ARGV id, text   Reply number of entries
command('add', function(keys, args)
  local id, text = unpack(args)
  local count = redis.call('HLEN', keys[1])
  if count >= MAX_ENTRIES and redis.call('HEXISTS', keys[1], id) == 0 then
    fail('conflict', 'You have ' .. MAX_ENTRIES .. ' entries. Remove one first.')
  end
  return count + redis.call('HSET', keys[1], id, text)
end)
