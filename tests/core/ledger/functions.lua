local function total(hash)
  local sum = 0
  for _, quantity in ipairs(redis.call('HVALS', hash)) do sum = sum + tonumber(quantity) end
  return sum
end

-- `at` differs between operations; the subject is the box alone.
projection('ranked', function(box, at)
  local sum = total(key.box_items(box))
  if sum == 0 then return {'ZREM', key.boxes_top(), box} end
  return {'ZADD', key.boxes_top(), sum, box}
end, 1)

projection('on_shelf', function(box, shelf)
  return perform('set_total', {key.shelf_boxes(shelf)}, {shelf, box, total(key.box_items(box))})
end)

projection('shelf_ranked', function(shelf)
  return {'ZADD', key.shelves_top(), total(key.shelf_boxes(shelf)), shelf}
end)

-- put: set the quantity of an item in a box, which is on a shelf.
-- KEYS items   ARGV box, shelf, item, quantity   Reply the box's total
command('put', function(keys, args)
  local box, shelf, item, quantity = unpack(args)
  if tonumber(quantity) == nil then fail('not_a_number', 'The quantity is not a number.', {field = 'quantity'}) end
  redis.call('HSET', keys[1], item, quantity)
  emit('box.put', box, {box = box, item = item, quantity = tonumber(quantity)})
  project('ranked', box, redis.call('TIME')[2])
  project('on_shelf', box, shelf)
  return text(total(keys[1]))
end)

-- set_total: store the total of a box on its shelf.   KEYS boxes   ARGV shelf, box, total
command('set_total', function(keys, args)
  local shelf, box, sum = unpack(args)
  redis.call('HSET', keys[1], box, sum)
  project('shelf_ranked', shelf)
end)

-- announce: emit events about a box, and change nothing.   KEYS items   ARGV box, how many, origin ('' for none)
command('announce', function(keys, args)
  for n = 1, tonumber(args[2]) do
    emit('box.announced', args[1], {box = args[1], n = n}, args[3] ~= '' and args[3] or nil)
  end
end)

-- total: the sum of a box's quantities.   KEYS items   Reply the total
query('total', function(keys)
  return text(total(keys[1]))
end)

query('write_in_query', function(keys)
  return redis.call('HSET', keys[1], 'item', '1')
end)
