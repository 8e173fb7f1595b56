-- Pages of a sorted set. A reader's place is a score and a member, not a rank, so nothing is repeated or skipped when
-- others add and remove in between, also among members of one score. A domain whose lists say more of their members than
-- ids puts this file before its own and builds on `members_after`.

-- Bytes decide, as they do inside a sorted set; Lua's own < would follow the server's locale.
local function is_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The first rank behind a member that is not in the set any more, or has moved. Its neighbours of the same score are
-- found by halving, so a million posts of one millisecond cost twenty looks.
local function rank_behind(set, score, member, reverse)
  local beyond = reverse and {'(' .. score, '+inf'} or {'-inf', '(' .. score}
  local low = redis.call('ZCOUNT', set, beyond[1], beyond[2])
  local high = low + redis.call('ZCOUNT', set, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', set, middle, middle)[1]
    local is_behind = is_less(member, there)
    if reverse then is_behind = is_less(there, member) end
    if is_behind then high = middle else low = middle + 1 end
  end
  return low
end

-- What comes after a place in a sorted set: {member, score, …}. Without a place, from the beginning.
local function members_after(set, score, member, count, reverse)
  local first = 0
  if score ~= '' then
    local found = redis.call(reverse and 'ZREVRANK' or 'ZRANK', set, member, 'WITHSCORE')
    if found and tonumber(found[2]) == tonumber(score) then
      first = found[1] + 1
    else
      first = rank_behind(set, score, member, reverse)
    end
  end
  return redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', set, first, first + count - 1, 'WITHSCORES')
end

-- after: what comes after a place in a sorted set.
-- KEYS set   ARGV score, member, count, 'newest' (from the highest score down) or 'oldest'
-- Reply {member, score, …}
query('after', function(keys, args)
  return members_after(keys[1], args[1], args[2], tonumber(args[3]), args[4] == 'newest')
end)
