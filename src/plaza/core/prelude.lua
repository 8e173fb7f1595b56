-- The start of every Plaza library. The loader writes before it:
--   LIBRARY    the library's name           VERSION        a hash of the whole source
--   CLUSTERED  true on a cluster            PROJECTION_MS  how long applying projection updates may take
--   key        key names, as functions of their parts, and the constants that the library declares in Python
--
-- A library registers commands, queries and projections.
--
-- A *command* checks, changes the source data of one owner, and requests projection updates:
--     command('like', function(keys, args) … project('ranked', post, tag) … return reply end)
-- A *query* only reads:  query('page', function(keys, args) … end)
-- A *projection* computes the value of a derived key from an owner's current source data:
--     projection('ranked', function(post, tag) return {'ZADD', key.hashtag_ranked(tag), score, post} end)
-- It returns one Valkey command on one key, a table of commands, or nil. The result must be absolute and repeatable
-- (`ZADD` with a computed score, never a bare `INCR`), because it can be applied twice, or again later. For one subject
-- it always writes the same keys: what it adds in one state, it removes in the other. If the other key is source
-- data with projections of its own, the projection returns perform('command', {keys}, {args}).
--
-- On one server the updates run in the same atomic function. On a cluster the other keys are on other nodes, so
-- the command writes an outbox entry beside its source data and returns the updates. The caller applies them and settles
-- the entry; if the caller dies, a worker does. Updates of two operations can arrive in any order; settle() below makes
-- sure that no old value remains.

local commands_by_name, projections, subject_sizes = {}, {}, {}
local requested = {} -- the updates that the running command has requested, in order: {projection, argument, …}

-- Ends the function with the Python error of that code. Check before you write: nothing is rolled back.
-- `extra` has further members of the error response, such as {field = 'link'}.
local function fail(code, detail, extra)
  local members = extra or {}
  members.detail = detail
  error({err = 'PLAZA ' .. code .. ' ' .. cjson.encode(members)})
end

local function clock_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Time is an argument, so that tests can set it; '' means the server's clock.
local function now(given)
  if given == nil or given == '' then return clock_ms() end
  return tonumber(given)
end

-- Rejects writes of a job that has lost its lease. `fence_key` stores the highest fencing token seen, beside the data
-- that it guards (on one server the job's own key.fence() will do). The token '' means: not under a lease.
local function fence(fence_key, token)
  if token == '' then return end
  local given, highest = tonumber(token), tonumber(redis.call('GET', fence_key) or 0)
  if given < highest then fail('fenced', 'Another run has taken over.') end
  if given > highest then redis.call('SET', fence_key, token) end
end

-- Formats numbers without loss: Valkey would cut a Lua number in a reply or an argument to an integer.
local function text(value)
  if type(value) ~= 'number' then return value end
  if value == math.floor(value) and math.abs(value) < 1e15 then return string.format('%.0f', value) end
  return string.format('%.17g', value)
end

-- Parses a number that another service may have written. Returns `default` for anything but a finite number; tonumber()
-- alone accepts 'nan', 'inf' and '0x10', and fails on false, which is what a missing field is.
local function finite(value, default)
  if type(value) == 'string' and (#value > 400 or value:find('[^%d%s.eE+-]')) then return default end
  local number = (type(value) == 'string' or type(value) == 'number') and tonumber(value)
  if number and number > -2 ^ 62 and number < 2 ^ 62 then return number end
  return default
end

-- `subject_size` is how many arguments, from the first, identify what the projection writes; all of them by default.
-- The other arguments (a time, a text) may differ between operations on the same subject. Such operations must find
-- each other in the outbox.
local function projection(name, compute, subject_size)
  projections[name] = compute
  subject_sizes[name] = subject_size
end

-- Requests a projection update, computed when the command has ended. Arguments become text, in both layouts.
local function project(name, ...)
  local update = {name, ...}
  for i = 2, #update do update[i] = text(update[i]) end
  requested[#requested + 1] = update
end

local function perform(name, keys, args)
  local call = {'PERFORM', name, #keys}
  for _, k in ipairs(keys) do call[#call + 1] = k end
  for _, a in ipairs(args) do call[#call + 1] = text(a) end
  return call
end

-- Adds an event to a stream. It can be added twice, so consumers must be idempotent.
local function event(stream, ...)
  project('event', stream, ...)
end
projection('event', function(stream, ...)
  return {'XADD', key.events(stream), '*', ...}
end)

-- Computes an update and appends its Valkey commands to a list.
local function append_commands(commands, update)
  local result = projections[update[1]](unpack(update, 2))
  if not result or #result == 0 then return end
  if type(result[1]) ~= 'table' then result = {result} end
  for _, command in ipairs(result) do
    for i = 1, #command do command[i] = text(command[i]) end
    commands[#commands + 1] = command
  end
end

local function take_requested()
  local taken = requested
  requested = {}
  return taken
end

-- One server: applies updates until none is left. A performed command can request more.
local function run_projections()
  while #requested > 0 do
    local commands = {}
    for _, update in ipairs(take_requested()) do append_commands(commands, update) end
    for _, command in ipairs(commands) do
      if command[1] == 'PERFORM' then
        local count = tonumber(command[3])
        commands_by_name[command[2]]({unpack(command, 4, 3 + count)}, {unpack(command, 4 + count)})
      else
        redis.call(unpack(command))
      end
    end
  end
end

-- Cluster: the outbox. The owner's hash `pending` has these fields until all updates are settled:
--   <op>         the outbox entry of an operation: {at = when its updates were computed, todo = {update, …},
--                dirty = {subject = true, …}}
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
local function write_updates(pending, slot, op, todo)
  local entry = {at = clock_ms(), todo = todo}
  local fields = {op, cjson.encode(entry)}
  local reply = {op, text(entry.at + PROJECTION_MS)}
  for _, update in ipairs(todo) do
    fields[#fields + 1] = subject_of(update)
    fields[#fields + 1] = op
    append_commands(reply, cjson.decode(update))
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
  return write_updates(pending, slot, op, todo)
end

local function mark_dirty(pending, op, subject)
  local entry = read_outbox_entry(pending, op)
  entry.dirty = entry.dirty or {}
  entry.dirty[subject] = true
  redis.call('HSET', pending, op, cjson.encode(entry))
end

-- settle: removes an outbox entry after its updates have been applied.
-- KEYS pending, slot   ARGV op, late ('1' if a node rejected an update as too late)
-- Reply nil when done, else {op, deadline, command, …} to apply and settle again
--
-- For each subject: if no later operation has written it, it is done. If a later operation has and is still in progress,
-- our update may have overwritten its value: mark the subject dirty there, and that operation computes it again. If
-- the later operation is settled already, we compute the subject again from the current source data.
local function settle(keys, args)
  local pending, slot, op, late = keys[1], keys[2], args[1], args[2] == '1'
  local entry = read_outbox_entry(pending, op)
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
  if #again > 0 then return write_updates(pending, slot, op, again) end
  if redis.call('EXISTS', pending) == 0 then redis.call('SREM', slot, pending) end
end

-- recover: a worker takes over the outbox entries of callers that died.
-- KEYS pending, slot   ARGV op (the worker's), age_ms   Reply nil if there is none, else {op, deadline, command, …}
--
-- `age_ms` is much longer than PROJECTION_MS, so no update of such a caller can still arrive: apply() rejects it.
local function recover(keys, args)
  local pending, slot, op = keys[1], keys[2], args[1]
  local oldest, todo, subjects = clock_ms() - tonumber(args[2]), {}, {}
  local fields = redis.call('HGETALL', pending)
  for i = 1, #fields, 2 do
    local entry = fields[i + 1]:sub(1, 1) == '{' and cjson.decode(fields[i + 1])
    if entry and entry.at <= oldest then
      redis.call('HDEL', pending, fields[i])
      for _, update in ipairs(entry.todo) do add_once(todo, subjects, update) end
    end
  end
  if #todo > 0 then return write_updates(pending, slot, op, todo) end
  if #fields == 0 then redis.call('SREM', slot, pending) end
end

local function refuse_late(deadline)
  if deadline ~= '' and clock_ms() > tonumber(deadline) then
    fail('too_late', 'This update came too late to be applied.')
  end
end

-- apply: applies one update before its deadline.   KEYS key   ARGV deadline, command, arguments after the key
local function apply(keys, args)
  refuse_late(args[1])
  return redis.call(args[2], keys[1], unpack(args, 3))
end

local function register(name, callback, flags)
  redis.register_function({
    function_name = LIBRARY .. '_' .. name .. '_' .. VERSION,
    callback = callback,
    flags = flags or {},
  })
end

local function query(name, callback)
  register(name, callback, {'no-writes'})
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
    requested = {}
    local slot, pending = table.remove(keys), table.remove(keys)
    local op, deadline = table.remove(args, 1), table.remove(args, 1)
    refuse_late(deadline)
    local reply = callback(keys, args)
    if reply == nil then reply = false end
    if #requested == 0 then return {reply} end
    return {reply, write_outbox_entry(pending, slot, op)}
  end)
end

if CLUSTERED then
  register('settle', settle)
  register('recover', recover)
  register('apply', apply)
end
