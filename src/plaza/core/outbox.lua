-- Cluster: the outbox. The owner's hash `pending` has these fields until all updates are settled:
--   <op>         the outbox entry of an operation: {at = when its updates were computed, todo = {update, …},
--                dirty = {subject = true, …}, events = true if it has events to publish}
--   <subject>    the latest operation on that subject
-- An update is a projection's name and arguments, as JSON. Its subject is the part of them that identifies what is
-- written. The set `slot` lists the hashes of a slot, so that workers find them.

local function subject_of(update)
  local decoded = cjson.decode(update)
  local size = subject_sizes[decoded[1]]
  return size and cjson.encode({unpack(decoded, 1, 1 + size)}) or update
end

local function read_outbox_entry(pending, op)
  local entry = redis.call('HGET', pending, op)
  return entry and cjson.decode(entry)
end

-- Writes the outbox entry of an operation and computes its updates. Returns {op, deadline, command, …} for the caller.
-- `events` is the update that publishes the owner's events, or nil.
local function write_updates(pending, slot, op, todo, events)
  local entry = {at = clock_ms(), todo = todo, events = events and true}
  local fields = {op, cjson.encode(entry)}
  local reply, commands = {op, text(entry.at + PROJECTION_MS), events}, {}
  shared = {}
  for _, update in ipairs(todo) do
    fields[#fields + 1] = subject_of(update)
    fields[#fields + 1] = op
    append_commands(commands, cjson.decode(update))
  end
  for _, command in ipairs(commands) do
    for i = 1, #command do command[i] = text(command[i]) end
    reply[#reply + 1] = command
  end
  redis.call('HSET', pending, unpack(fields))
  redis.call('SADD', slot, pending)
  return reply
end

-- Appends an update, unless the list has one with the same subject.
local function add_once(todo, subjects, update)
  local subject = subject_of(update)
  if subjects[subject] then return end
  subjects[subject] = true
  todo[#todo + 1] = update
end

local function write_outbox_entry(pending, slot, op)
  local todo, subjects = {}, {}
  for _, update in ipairs(take_requested()) do add_once(todo, subjects, cjson.encode(update)) end
  return write_updates(pending, slot, op, todo, #emitted > 0 and queue_emitted(pending, op) or nil)
end

-- Returns the update that publishes what is left in the owner's queue, or nil if it is empty.
local function publish_rest(pending)
  if redis.call('EXISTS', (queue_of(pending))) == 1 then return publication(pending) end
end

local function mark_dirty(pending, op, subject)
  local entry = read_outbox_entry(pending, op)
  entry.dirty = entry.dirty or {}
  entry.dirty[subject] = true
  redis.call('HSET', pending, op, cjson.encode(entry))
end

-- settle: removes an outbox entry after its updates have been applied.
-- KEYS pending, slot   ARGV op, late ('1' if a node rejected an update as too late), then what it published: epoch, last
-- number, …   Reply nil when done, else {op, deadline, command, …} to apply and settle again
--
-- For each subject: if no later operation has written it, it is done. If a later operation has and is still in progress,
-- our update may have overwritten its value: mark the subject dirty there, and that operation computes it again. If
-- the later operation is settled already, we compute the subject again from the current source data.
-- Events: every operation publishes all that is queued, so published is published, in whatever order operations settle.
local function settle(keys, args)
  local pending, slot, op, late = keys[1], keys[2], args[1], args[2] == '1'
  local entry = read_outbox_entry(pending, op)
  unqueue_events({(queue_of(pending))}, {unpack(args, 3)})
  if not entry then return nil end -- a worker has recovered it
  local again, done = {}, {op}
  for _, update in ipairs(entry.todo) do
    local subject = subject_of(update)
    local latest = redis.call('HGET', pending, subject)
    if latest and latest ~= op then
      mark_dirty(pending, latest, subject)
    elseif latest and not late and not (entry.dirty and entry.dirty[subject]) then
      done[#done + 1] = subject
    else
      again[#again + 1] = update
    end
  end
  redis.call('HDEL', pending, unpack(done))
  local events = entry.events and late and publish_rest(pending) or nil
  if #again > 0 or events then return write_updates(pending, slot, op, again, events) end
  if redis.call('EXISTS', pending) == 0 then redis.call('SREM', slot, pending) end
end

-- recover: a worker takes over the outbox entries of callers that died.
-- KEYS pending, slot   ARGV op (the worker's), age_ms   Reply nil if there is none, else {op, deadline, command, …}
--
-- `age_ms` is much longer than PROJECTION_MS, so no update of such a caller can still arrive: apply() rejects it.
local function recover(keys, args)
  local pending, slot, op = keys[1], keys[2], args[1]
  local at, todo, subjects, has_events = clock_ms(), {}, {}, false
  local fields = redis.call('HGETALL', pending)
  for i = 1, #fields, 2 do
    local entry = fields[i + 1]:sub(1, 1) == '{' and cjson.decode(fields[i + 1])
    -- An entry of the future was written before the clock was set back.
    if entry and (entry.at <= at - tonumber(args[2]) or entry.at > at + 1000) then
      redis.call('HDEL', pending, fields[i])
      has_events = has_events or entry.events
      for _, update in ipairs(entry.todo) do add_once(todo, subjects, update) end
    end
  end
  local events = has_events and publish_rest(pending) or nil
  if #todo > 0 or events then return write_updates(pending, slot, op, todo, events) end
  if redis.call('EXISTS', pending) == 0 then redis.call('SREM', slot, pending) end
end

-- apply: applies updates before their deadline. They are on one node, in any slots.
-- KEYS key of the first   ARGV deadline, then of each update: number of words, command, key, argument, …
-- If the slot of a key has moved, or a key has the wrong type, the call fails on the way. The caller repeats it update by
-- update.
local function apply(keys, args)
  refuse_late(args[1])
  local at = 2
  while at < #args do
    local last = at + tonumber(args[at])
    redis.call(unpack(args, at + 1, last))
    at = last + 1
  end
end

local function register(name, callback, flags)
  redis.register_function({
    function_name = LIBRARY .. '_' .. name .. '_' .. VERSION,
    callback = callback,
    flags = flags or {},
  })
end

local queries_by_name, has_queries = {}, false

-- each: runs a query for several owners whose keys are on one node, in any slots.
-- KEYS of the first owner   ARGV query, how many arguments, argument, …, then the keys of the other owners
-- Reply the query's for each. If the slot of an owner has moved, the call fails.
local function each(keys, args)
  local callback, replies, last = queries_by_name[args[1]], {}, 2 + tonumber(args[2])
  local function add(of_owner) replies[#replies + 1] = run_query(callback, of_owner, {unpack(args, 3, last)}) or false end
  add(keys)
  for i = last + 1, #args, #keys do add({unpack(args, i, i + #keys - 1)}) end
  return replies
end

local function query(name, callback)
  if not has_queries then register('each', each, {'no-writes', 'allow-cross-slot-keys'}) end
  has_queries, queries_by_name[name] = true, callback
  register(name, function(keys, args) return run_query(callback, keys, args) end, {'no-writes'})
end

local own_outbox -- of the running command's owner, on a cluster

-- Whether earlier operations on the owner have updates that are not applied yet.
local function has_pending_updates()
  return own_outbox ~= nil and redis.call('EXISTS', own_outbox) == 1
end

local function command(name, callback)
  commands_by_name[name] = callback
  if not CLUSTERED then
    register(name, function(keys, args)
      requested = {}
      local reply = callback(keys, args)
      run_projections()
      return reply
    end)
    return
  end
  -- KEYS the owner's, then pending, slot   ARGV op, deadline ('' for none), then the command's
  -- Reply {reply}, or {reply, {op, deadline, command, …}}
  register(name, function(keys, args)
    requested, emitted = {}, {}
    local slot, pending = table.remove(keys), table.remove(keys)
    own_outbox = pending
    local op, deadline = table.remove(args, 1), table.remove(args, 1)
    refuse_late(deadline)
    local reply = callback(keys, args)
    if reply == nil then reply = false end
    if #requested == 0 and #emitted == 0 then return {reply} end
    return {reply, write_outbox_entry(pending, slot, op)}
  end)
end

if CLUSTERED then
  register('settle', settle)
  register('recover', recover)
  register('apply', apply, {'allow-cross-slot-keys'})
  register('publish_events', publish_events)
  register('unqueue_events', unqueue_events)
  register('queued_events', queued_events, {'no-writes'})
end
