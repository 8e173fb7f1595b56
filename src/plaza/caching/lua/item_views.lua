-- How often items are viewed: `viewed:` has a lower score for each view.

-- halve_views: halve all scores, once per interval, so that older views count less.
-- Surplus items are removed in batches; the scores are halved with the last batch.
-- KEYS viewed, halved   ARGV interval, how many items stay, batch size   Reply the number of items still to remove
command('halve_views', function(keys, args)
  local viewed, halved = keys[1], keys[2]
  local keep, batch = tonumber(args[2]), tonumber(args[3])
  if tonumber(redis.call('GET', halved) or '-1') >= tonumber(args[1]) then return 0 end
  local surplus = redis.call('ZCARD', viewed) - keep
  if surplus > 0 then
    -- Scores are negative, so the least viewed items are last.
    redis.call('ZREMRANGEBYRANK', viewed, math.max(keep, keep + surplus - batch), -1)
    if surplus > batch then return surplus - batch end
  end
  redis.call('ZUNIONSTORE', viewed, 1, viewed, 'WEIGHTS', 0.5)
  redis.call('SET', halved, args[1])
  return 0
end)
