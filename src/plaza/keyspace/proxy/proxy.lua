-- What the proxy cannot send as it is: a command whose answer must be looked at before it is made.
--
-- Neither function has effects, and a write keeps to one key, so they are registered as they are and may stand in a
-- batch or a transaction among other commands.

-- How many of `count` elements lie between two places, which count from the end if they are negative.
local function span(count, first, last)
  if first < 0 then first = math.max(first + count, 0) end
  if last < 0 then last = last + count end
  return math.max(math.min(last, count - 1) - first + 1, 0)
end

-- How long an answer would be. ZCARD and LLEN stand with the ends of a range; anything else counts by itself.
local function length(key, name, ...)
  if name ~= 'ZCARD' and name ~= 'LLEN' then return redis.pcall(name, key, ...) end
  local count = redis.pcall(name, key)
  if type(count) == 'table' then return count end
  local first, last = ...
  return span(count, tonumber(first), tonumber(last))
end

-- read: a reading command, unless its key is hidden or the answer would be too long.
-- KEYS key, and the hash that may hide it, if any
-- ARGV field that hides ('' for none), most elements, words of what asks how many there are, …, name, words after the key
-- Reply the command's own; the error HIDDEN where the key must look as if it were not there
query('read', function(keys, args)
  local field, most, asking = args[1], tonumber(args[2]), tonumber(args[3])
  if field ~= '' and redis.call('HEXISTS', keys[2], field) == 1 then return redis.error_reply('HIDDEN as if it were not there') end
  if asking > 0 then
    local size = length(keys[1], unpack(args, 4, 3 + asking))
    if type(size) == 'table' then return size end -- it is not of that type
    if size > most then
      return redis.error_reply('ERR the answer would have ' .. size .. ' elements; ' .. most .. ' are allowed here. '
        .. 'Ask for a range of it, or scan it')
    end
  end
  return redis.pcall(args[4 + asking], keys[1], unpack(args, 5 + asking))
end)

-- What a hash would hold: its fields and bytes once these pairs are in it.
local function grown(hash, pairs_)
  local sizes, count, bytes = {}, 0, 0
  local there = redis.call('HGETALL', hash)
  for i = 1, #there, 2 do sizes[there[i]] = #there[i + 1] end
  for i = 1, #pairs_, 2 do sizes[pairs_[i]] = #pairs_[i + 1] end
  for name, size in pairs(sizes) do
    count = count + 1
    bytes = bytes + #name + size
  end
  return count, bytes
end

-- write: HSET, HDEL or HINCRBY on a hash that is there, as long as it stays small.
-- KEYS hash   ARGV most fields, most bytes, name, words after the key
-- Reply the command's own; of HINCRBY as text, since a number of Lua's is exact to 2^53 only
register('write', function(keys, args)
  local hash, most_fields, most_bytes, name = keys[1], tonumber(args[1]), tonumber(args[2]), args[3]
  local words = {unpack(args, 4)}
  if redis.call('EXISTS', hash) == 0 then return redis.error_reply('ERR there is no such profile') end
  if name ~= 'HDEL' then
    local fields, bytes = redis.call('HLEN', hash), 0
    if fields <= most_fields then fields, bytes = grown(hash, words) end
    if fields > most_fields or bytes > most_bytes then
      return redis.error_reply('ERR a profile holds at most ' .. most_fields .. ' fields and ' .. most_bytes .. ' bytes')
    end
  end
  local reply = redis.pcall(name, hash, unpack(words))
  if name == 'HINCRBY' and type(reply) == 'number' then return redis.call('HGET', hash, words[1]) end
  return reply
end)
