-- Pages. A page owns `cache:<page>`, what is sent, and `shop:page:<page>`, what is known of it: among that, who computes
-- it now, and the page itself for those who come meanwhile.

local PASS_MS = 5000 -- how long a page that turned out not to be storable is not waited for
-- How long a tag is remembered beyond its pages: a page that was begun before a purge, however slow, must not slip in.
local TAG_MS = 7200000
-- On a cluster two nodes' clocks may differ by a little: better to compute a page once more than to show an old one.
local SKEW_MS = CLUSTERED and 1000 or 0

-- page: a page.   KEYS page, state   ARGV now_ms
-- Reply {body, head, made, until, cost, now}; the body is nil if there is none, and old if `until` has passed;
-- {nil, 'pass'} if it is not for storing, {nil, 'busy'} if someone computes it now, {nil, ''} if nobody does
query('page', function(keys, args)
  local at = now(args[1])
  local body = redis.call('GET', keys[1])
  local head, made, till, cost, pass, lease =
    unpack(redis.call('HMGET', keys[2], 'head', 'made', 'until', 'cost', 'pass', 'lease'))
  body = body or (head and redis.call('HGET', keys[2], 'old'))
  if head and body then return {body, head, made, till, cost, text(at)} end
  if pass and tonumber(pass) >= at then return {false, 'pass'} end
  return {false, lease and tonumber(lease) > at and 'busy' or ''}
end)

-- claim_page: someone wants to compute a page.
-- KEYS page, state   ARGV who, now_ms, lease_ms, '1' if also while it is fresh
-- Reply 'yours', 'busy', or 'there' if somebody has just stored it
command('claim_page', function(keys, args)
  local at = now(args[2])
  local till, lease = unpack(redis.call('HMGET', keys[2], 'until', 'lease'))
  if lease and tonumber(lease) > at then return 'busy' end
  if args[4] ~= '1' and till and tonumber(till) > at then return 'there' end
  redis.call('HSET', keys[2], 'busy', args[1], 'lease', text(at + args[3]), 'began', text(at))
  redis.call('HDEL', keys[2], 'void')
  if redis.call('PTTL', keys[2]) < tonumber(args[3]) then redis.call('PEXPIRE', keys[2], args[3]) end
  return 'yours'
end)

-- tagged: a page shows something that may change.
projection('tagged', function(page, tag)
  local began, gone, head = unpack(redis.call('HMGET', key.shop_page_state(page), 'from', 'gone', 'head'))
  if not head then return nil end
  return perform('tag', {key.shop_page_tag(tag)}, {tag, page, began, gone})
end)

-- store_page: a page was computed.
-- KEYS page, state   ARGV page, who, body, head, now_ms, cost, fresh_ms, old_ms, tag, …
-- Reply 1, or 0 if somebody else computes it by now, or what it shows has changed meanwhile
command('store_page', function(keys, args)
  local page, who, body, head, at, cost, fresh, old = unpack(args, 1, 8)
  at = now(at)
  local busy, void, began = unpack(redis.call('HMGET', keys[2], 'busy', 'void', 'began'))
  if busy ~= who then return 0 end
  redis.call('HDEL', keys[2], 'busy', 'lease', 'void', 'pass')
  if void then return 0 end
  redis.call('SET', keys[1], body, 'PX', fresh)
  redis.call('HSET', keys[2], 'head', head, 'old', body, 'made', text(at), 'cost', cost, 'from', began,
    'until', text(at + fresh), 'gone', text(at + fresh + old))
  redis.call('PEXPIRE', keys[2], fresh + old)
  for i = 9, #args do project('tagged', page, args[i]) end
  return 1
end)

-- give_up_page: a page could not be computed, or is not for storing ('1').   KEYS page, state   ARGV who, pass, now_ms
command('give_up_page', function(keys, args)
  if redis.call('HGET', keys[2], 'busy') ~= args[1] then return end
  redis.call('HDEL', keys[2], 'busy', 'lease', 'void')
  if args[2] ~= '1' then return end
  redis.call('HSET', keys[2], 'pass', text(now(args[3]) + PASS_MS))
  if redis.call('PTTL', keys[2]) < PASS_MS then redis.call('PEXPIRE', keys[2], PASS_MS) end
end)

-- dropped: a page shows something that has changed since.
projection('dropped', function(tag, page, purged)
  return perform('drop_page', {key.shop_page(page), key.shop_page_state(page)}, {purged})
end)

-- A tag stays for as long as any of its pages might be shown.
local function remember_tag(tag, ms)
  if redis.call('PTTL', tag) < ms then redis.call('PEXPIRE', tag, text(ms)) end
end

-- tag: a page shows something.   KEYS tag   ARGV tag, page, when its computation began, until when it may be shown
command('tag', function(keys, args)
  local tag, page, began, gone = unpack(args)
  local purged = redis.call('ZSCORE', keys[1], 'purged')
  if purged and tonumber(purged) + SKEW_MS >= tonumber(began) then
    project('dropped', tag, page, purged)
    return
  end
  redis.call('ZADD', keys[1], gone, page)
  redis.call('ZREMRANGEBYSCORE', keys[1], '-inf', text(tonumber(began) - TAG_MS))
  remember_tag(keys[1], tonumber(gone) - tonumber(began) + TAG_MS)
end)

-- purge: something has changed, and with it the pages that show it.
-- KEYS tag   ARGV tag, now_ms, how many at once   Reply how many pages were dropped
command('purge', function(keys, args)
  local tag, at = args[1], text(now(args[2]))
  redis.call('ZADD', keys[1], 'GT', at, 'purged')
  remember_tag(keys[1], TAG_MS)
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

-- drop_page: a page goes, if its computation began before something it shows changed.   KEYS page, state   ARGV when
command('drop_page', function(keys, args)
  local from, began, busy = unpack(redis.call('HMGET', keys[2], 'from', 'began', 'busy'))
  local changed = tonumber(args[1]) + SKEW_MS
  if from and tonumber(from) <= changed then
    redis.call('DEL', keys[1])
    redis.call('HDEL', keys[2], 'head', 'old', 'made', 'until', 'gone', 'cost', 'from')
  end
  -- What is being computed may be out of date already.
  if busy and tonumber(began) <= changed then redis.call('HSET', keys[2], 'void', '1') end
end)
