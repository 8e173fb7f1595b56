-- Commands of the proxy that need a check before they run.
--
-- Neither function updates projections, and a write has one key. So they are registered without an outbox, and may run
-- in a batch or a transaction with other commands.

-- The number of elements between two indices of a list of `count`; negative indices count from the end.
local function span(count, first, last)
  if first < 0 then first = math.max(first + count, 0) end
  if last < 0 then last = last + count end
  return math.max(math.min(last, count - 1) - first + 1, 0)
end

-- The length of a reply. ZCARD and LLEN come with the bounds of a range; other commands return the length themselves.
local function length(key, name, ...)
  if name ~= 'ZCARD' and name ~= 'LLEN' then return redis.pcall(name, key, ...) end
  local count = redis.pcall(name, key)
  if type(count) == 'table' then return count end
  local first, last = ...
  return span(count, tonumber(first), tonumber(last))
end

-- proxy_read: run a read command, unless its key is hidden or the reply would be too long.
-- KEYS key, and the hash that may hide it, if any
-- ARGV hiding field ('' for none), free elements, most elements, number of words of the length command, its words, name,
--   arguments
-- Reply the command's own; the error HIDDEN if the key must look absent, or LONG and the length if it is above the free one
query('read', function(keys, args)
  local field, free, most, length_words = args[1], tonumber(args[2]), tonumber(args[3]), tonumber(args[4])
  if field ~= '' and redis.call('HEXISTS', keys[2], field) == 1 then return redis.error_reply('HIDDEN the key looks absent') end
  if length_words > 0 then
    local size = length(keys[1], unpack(args, 5, 4 + length_words))
    if type(size) == 'table' then return size end -- the key has another type
    if size > most then
      return redis.error_reply('ERR the result would have ' .. size .. ' elements; ' .. most .. ' are allowed here. '
        .. 'Request a range, or scan')
    end
    if size > free then return redis.error_reply('LONG ' .. size) end
  end
  return redis.pcall(args[5 + length_words], keys[1], unpack(args, 6 + length_words))
end)

-- The number of fields and bytes of a hash after setting these pairs.
local function size_after(hash, pairs_)
  local sizes, count, bytes = {}, 0, 0
  local current = redis.call('HGETALL', hash)
  for i = 1, #current, 2 do sizes[current[i]] = #current[i + 1] end
  for i = 1, #pairs_, 2 do sizes[pairs_[i]] = #pairs_[i + 1] end
  for name, size in pairs(sizes) do
    count = count + 1
    bytes = bytes + #name + size
  end
  return count, bytes
end

-- proxy_write: run HSET, HDEL or HINCRBY on an existing hash, if it stays small.
-- KEYS hash   ARGV most fields, most bytes, name, arguments after the key
-- Reply the command's own; HINCRBY's as text, because Lua numbers are exact only to 2^53
register('write', function(keys, args)
  local hash, most_fields, most_bytes, name = keys[1], tonumber(args[1]), tonumber(args[2]), args[3]
  local words = {unpack(args, 4)}
  if redis.call('EXISTS', hash) == 0 then return redis.error_reply('ERR no such profile') end
  if name ~= 'HDEL' then
    local fields, bytes = redis.call('HLEN', hash), 0
    if fields <= most_fields then fields, bytes = size_after(hash, words) end
    if fields > most_fields or bytes > most_bytes then
      return redis.error_reply('ERR a profile holds at most ' .. most_fields .. ' fields and ' .. most_bytes .. ' bytes')
    end
  end
  local reply = redis.pcall(name, hash, unpack(words))
  if name == 'HINCRBY' and type(reply) == 'number' then return redis.call('HGET', hash, words[1]) end
  return reply
end)
