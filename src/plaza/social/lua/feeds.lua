-- Lists of posts, as readers page through them.

-- Whose posts these are, where that can be seen: {id, score, …} becomes {id, score, author, …}.
local function with_authors(rows)
  local told = {}
  for i = 1, #rows, 2 do
    told[#told + 1] = rows[i]
    told[#told + 1] = text(rows[i + 1])
    told[#told + 1] = not CLUSTERED and redis.call('HGET', key.post(rows[i]), 'user_id') or ''
  end
  return told
end

-- posts_after: what comes after a place in a list of posts, newest first.
-- KEYS list   ARGV score ('' for the beginning), post, count   Reply {id, score, author, …}
question('posts_after', function(keys, args)
  return with_authors(members_after(keys[1], args[1], args[2], tonumber(args[3]), true))
end)
