-- Pages of a sorted set. A position is a score and a member, not a rank, so no member is repeated or skipped when others
-- are added and removed meanwhile, also among members with equal scores. A domain whose lists return more than ids
-- uses this library as its base and calls `members_after`.

-- Compares bytes, as a sorted set does; Lua's own < follows the server's locale.
local function is_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The first rank after a member that is no longer in the set, or has another score. A binary search among the members of
-- the same score finds it: 20 reads for a million posts of one millisecond.
local function rank_after(set, score, member, reverse)
  local range = reverse and {'(' .. score, '+inf'} or {'-inf', '(' .. score}
  local low = redis.call('ZCOUNT', set, range[1], range[2])
  local high = low + redis.call('ZCOUNT', set, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', set, middle, middle)[1]
    local is_after = is_less(member, found)
    if reverse then is_after = is_less(found, member) end
    if is_after then high = middle else low = middle + 1 end
  end
  return low
end

-- Returns {member, score, …} after a position in a sorted set; with the score '' from the start.
local function members_after(set, score, member, count, reverse)
  local first = 0
  if score ~= '' then
    local found = redis.call(reverse and 'ZREVRANK' or 'ZRANK', set, member, 'WITHSCORE')
    if found and tonumber(found[2]) == tonumber(score) then
      first = found[1] + 1
    else
      first = rank_after(set, score, member, reverse)
    end
  end
  return redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', set, first, first + count - 1, 'WITHSCORES')
end

-- paging_after: the members after a position in a sorted set.
-- KEYS set   ARGV score, member, count, 'newest' (from the highest score down) or 'oldest'
-- Reply {member, score, …}
query('after', function(keys, args)
  return members_after(keys[1], args[1], args[2], tonumber(args[3]), args[4] == 'newest')
end)
