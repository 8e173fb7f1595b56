-- Cached pages. A page owns `cache:<page>`, the body that is sent, and `shop:page:<page>`, its state: which request computes
-- it now, and a copy that is served meanwhile.

local PASS_MS = 5000 -- how long a page that is not cacheable is remembered as such
-- How long a tag outlives its pages: a slow computation that began before a purge must not store an outdated page.
local TAG_MS = 7200000
-- On a cluster the clocks of two nodes may differ. Computing a page twice is better than serving an outdated one.
local SKEW_MS = CLUSTERED and 1000 or 0

-- page: read a cached page.   KEYS page, state   ARGV now_ms
-- Reply {body, head, made, until, cost, now, '1' if another service wrote the body}; the page is expired if `until` has passed;
-- {nil, 'pass'} if it is not cacheable, {nil, 'busy'} if a request computes it now, {nil, ''} if none does
--
-- `cache:<page>` is documented: another service may delete a page before it expires. Then the previous one is not served.
query('page', function(keys, args)
  local at = now(args[1])
  local body = redis.call('GET', keys[1])
  local head, made, fresh_until, cost, pass, lease, old =
    unpack(redis.call('HMGET', keys[2], 'head', 'made', 'until', 'cost', 'pass', 'lease', 'old'))
  local is_old = not body and fresh_until and tonumber(fresh_until) <= at
  if head and (body or (is_old and old)) then
    return {body or old, head, made, fresh_until, cost, text(at), body and body ~= old and '1' or ''}
  end
  if pass and tonumber(pass) >= at then return {false, 'pass'} end
  return {false, lease and tonumber(lease) > at and 'busy' or ''}
end)

-- claim_page: ask for the right to compute a page.
-- KEYS page, state   ARGV request, now_ms, lease_ms, '1' to claim it also while it is fresh
-- Reply 'yours', 'busy', or 'there' if another request has just stored it
command('claim_page', function(keys, args)
  local at = now(args[2])
  local fresh_until, lease = unpack(redis.call('HMGET', keys[2], 'until', 'lease'))
  -- A lease that ends later than a new one would was taken before the clock was set back.
  if lease and tonumber(lease) > at and tonumber(lease) <= at + args[3] then return 'busy' end
  local is_fresh = fresh_until and tonumber(fresh_until) > at and redis.call('EXISTS', keys[1]) == 1
  if args[4] ~= '1' and is_fresh then return 'there' end
  redis.call('HSET', keys[2], 'busy', args[1], 'lease', text(at + args[3]), 'began', text(at))
  redis.call('HDEL', keys[2], 'void')
  if redis.call('PTTL', keys[2]) < tonumber(args[3]) then redis.call('PEXPIRE', keys[2], args[3]) end
  return 'yours'
end)

-- tagged: the entry of a page in a tag's set.
projection('tagged', function(page, tag)
  local began, gone, head = unpack(redis.call('HMGET', key.page_state(page), 'from', 'gone', 'head'))
  if not head then return nil end
  return perform('tag', {key.page_tag(tag)}, {tag, page, began, gone})
end)

-- store_page: store a computed page.
-- KEYS page, state   ARGV page, request, body, head, now_ms, cost_ms, fresh_ms, old_ms, tag, …
-- Reply 1, or 0 if another request computes it by now or the page was purged during the computation
command('store_page', function(keys, args)
  local page, request, body, head, at, cost, fresh, old = unpack(args, 1, 8)
  at = now(at)
  local busy, void, began = unpack(redis.call('HMGET', keys[2], 'busy', 'void', 'began'))
  if busy ~= request then return 0 end
  redis.call('HDEL', keys[2], 'busy', 'lease', 'void', 'pass')
  if void then return 0 end
  redis.call('SET', keys[1], body, 'PX', fresh)
  redis.call('HSET', keys[2], 'head', head, 'old', body, 'made', text(at), 'cost', cost, 'from', began,
    'until', text(at + fresh), 'gone', text(at + fresh + old))
  redis.call('PEXPIRE', keys[2], fresh + old)
  for i = 9, #args do project('tagged', page, args[i]) end
  return 1
end)

-- let_pass: until its lease ends, let other requests compute the page themselves. This one may still store it.
-- KEYS page, state   ARGV request
command('let_pass', function(keys, args)
  local busy, lease = unpack(redis.call('HMGET', keys[2], 'busy', 'lease'))
  if busy == args[1] and lease then redis.call('HSET', keys[2], 'pass', lease) end
end)

-- give_up_page: end a claim without a page.
-- KEYS page, state   ARGV request, '1' if the page is not cacheable, now_ms
command('give_up_page', function(keys, args)
  if redis.call('HGET', keys[2], 'busy') ~= args[1] then return end
  redis.call('HDEL', keys[2], 'busy', 'lease', 'void')
  if args[2] ~= '1' then return end
  redis.call('HSET', keys[2], 'pass', text(now(args[3]) + PASS_MS))
  if redis.call('PTTL', keys[2]) < PASS_MS then redis.call('PEXPIRE', keys[2], PASS_MS) end
end)

-- dropped: a page whose tag was purged at `purged`.
projection('dropped', function(tag, page, purged)
  return perform('drop_page', {key.cached_page(page), key.page_state(page)}, {purged})
end)

-- Keeps a tag for at least `ms` more.
local function extend_tag(tag, ms)
  if redis.call('PTTL', tag) < ms then redis.call('PEXPIRE', tag, text(ms)) end
end

-- tag: add a page to a tag.   KEYS tag   ARGV tag, page, when its computation began, until when it may be served
command('tag', function(keys, args)
  local tag, page, began, gone = unpack(args)
  local purged = redis.call('ZSCORE', keys[1], 'purged')
  if purged and tonumber(purged) + SKEW_MS >= tonumber(began) then
    project('dropped', tag, page, purged)
    return
  end
  redis.call('ZADD', keys[1], gone, page)
  redis.call('ZREMRANGEBYSCORE', keys[1], '-inf', text(tonumber(began) - TAG_MS))
  extend_tag(keys[1], tonumber(gone) - tonumber(began) + TAG_MS)
end)

-- purge: drop the pages with a tag.   KEYS tag   ARGV tag, now_ms, limit   Reply the number of dropped pages
command('purge', function(keys, args)
  local tag, at = args[1], text(now(args[2]))
  redis.call('ZADD', keys[1], 'GT', at, 'purged')
  extend_tag(keys[1], TAG_MS)
  local pages = redis.call('ZRANGE', keys[1], 0, tonumber(args[3]))
  local dropped = 0
  for _, page in ipairs(pages) do
    if page ~= 'purged' then
      redis.call('ZREM', keys[1], page)
      project('dropped', tag, page, at)
      dropped = dropped + 1
    end
  end
  return dropped
end)

-- drop_page: drop a page if its computation began before the purge.   KEYS page, state   ARGV purged_ms
command('drop_page', function(keys, args)
  local from, began, busy = unpack(redis.call('HMGET', keys[2], 'from', 'began', 'busy'))
  local purged = tonumber(args[1]) + SKEW_MS
  if from and tonumber(from) <= purged then
    redis.call('DEL', keys[1])
    redis.call('HDEL', keys[2], 'head', 'old', 'made', 'until', 'gone', 'cost', 'from')
  end
  -- The page that is being computed may be outdated, too.
  if busy and tonumber(began) <= purged then redis.call('HSET', keys[2], 'void', '1') end
end)
