-- What every Plaza library starts with. The loader writes before it:
--   LIBRARY    the domain's name            VERSION    a hash of the whole source
--   CLUSTERED  whether keys have braces     EFFECT_MS  how long effects may take to be applied
--   key        the catalogue's names, as functions of their parts
--
-- A library is made of verbs, questions and recipes.
--
-- A *verb* checks, changes the facts of its one owner, and says which effects that has:
--     verb('like', function(keys, args) … effect('ranked', post, tag) … return reply end)
-- A *question* only reads:  question('page', function(keys, args) … end)
-- A *recipe* is what some other key should say about an owner, computed from that owner's facts as they are now:
--     recipe('ranked', function(post, tag) return {'ZADD', key.hashtag_ranked(tag), score, post} end)
-- It returns one command on one key, several in a table, or nil for none. Its result is absolute and repeatable
-- (`ZADD` of a computed score, never a bare `INCR`), for it may be applied twice, or again later. Where the other
-- key is itself a fact with effects of its own, the recipe returns perform('verb', {keys}, {args}).
--
-- On one server a verb's effects run at once, inside the same atomic function. On a cluster the other keys live
-- elsewhere, so the verb leaves a note beside its facts and returns the commands: its caller applies them and settles
-- the note; if the caller dies, a worker does. Settling is what keeps two operations' effects, which may arrive in
-- either order, from leaving an old value behind: see settle() below.

local verbs, recipes = {}, {}
local asked = {} -- recipes that the running verb wants, in order

-- Ends the function with the Python error of that code. Check before you write: writes are not taken back.
-- `extra` holds further members of the answer, such as {field = 'link'}.
local function fail(code, detail, extra)
  local says = extra or {}
  says.detail = detail
  error({err = 'PLAZA ' .. code .. ' ' .. cjson.encode(says)})
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

-- Numbers as text that loses nothing: a Lua number in a reply or an argument would be cut to an integer.
local function text(value)
  if type(value) ~= 'number' then return value end
  if value == math.floor(value) and math.abs(value) < 1e15 then return string.format('%.0f', value) end
  return string.format('%.17g', value)
end

local function recipe(name, compute)
  recipes[name] = compute
end

-- Asks for a recipe's commands once the verb is through. Recipes get their arguments as text, in both layouts.
local function effect(name, ...)
  local wanted = {name, ...}
  for i = 2, #wanted do wanted[i] = text(wanted[i]) end
  asked[#asked + 1] = wanted
end

local function perform(name, keys, args)
  local command = {'PERFORM', name, #keys}
  for _, k in ipairs(keys) do command[#command + 1] = k end
  for _, a in ipairs(args) do command[#command + 1] = text(a) end
  return command
end

-- Something happened, for consumers to react to. It may be told twice: whoever listens must not mind.
local function event(stream, ...)
  effect('event', stream, ...)
end
recipe('event', function(stream, ...)
  return {'XADD', key.events(stream), '*', ...}
end)

-- Appends the commands that a recipe gives now.
local function compute(commands, wanted)
  local result = recipes[wanted[1]](unpack(wanted, 2))
  if not result or #result == 0 then return end
  if type(result[1]) ~= 'table' then result = {result} end
  for _, command in ipairs(result) do
    for i = 1, #command do command[i] = text(command[i]) end
    commands[#commands + 1] = command
  end
end

local function take_asked()
  local taken = asked
  asked = {}
  return taken
end

-- One server: applies effects until none is left. A performed verb may ask for more.
local function run_effects()
  while #asked > 0 do
    local commands = {}
    for _, wanted in ipairs(take_asked()) do compute(commands, wanted) end
    for _, command in ipairs(commands) do
      if command[1] == 'PERFORM' then
        local count = tonumber(command[3])
        verbs[command[2]]({unpack(command, 4, 3 + count)}, {unpack(command, 4 + count)})
      else
        redis.call(unpack(command))
      end
    end
  end
end

-- Cluster. A note is a field of the owner's `pending` hash, named by its operation:
--   {at = when it was written or last computed, todo = {encoded recipe, …}, dirty = another's effects may have
--    landed after ours}
-- and the field `version` counts the owner's operations. `slot` is the set by which a worker finds the hash.

local function write_note(pending, op, note)
  redis.call('HSET', pending, op, cjson.encode(note))
end

local function read_note(pending, op)
  local note = redis.call('HGET', pending, op)
  return note and cjson.decode(note)
end

local function drop_note(pending, slot, op)
  redis.call('HDEL', pending, op)
  if redis.call('HLEN', pending) <= 1 then -- only the version is left: nobody is there to compare it with
    redis.call('DEL', pending)
    redis.call('SREM', slot, pending)
  end
end

local function another_op(pending, op)
  for _, field in ipairs(redis.call('HRANDFIELD', pending, 3)) do
    if field ~= op and field ~= 'version' then return field end
  end
end

local function merge_todo(note, other)
  local there = {}
  for _, wanted in ipairs(note.todo) do there[wanted] = true end
  for _, wanted in ipairs(other.todo) do
    if not there[wanted] then note.todo[#note.todo + 1] = wanted end
  end
end

-- What the caller has to apply for a note, and until when: {op, version, deadline, command, …}
local function work_of(pending, op, note)
  local work = {op, redis.call('HGET', pending, 'version'), text(note.at + EFFECT_MS)}
  for _, wanted in ipairs(note.todo) do compute(work, cjson.decode(wanted)) end
  return work
end

local function leave_note(pending, slot, op)
  local note = {at = clock_ms(), todo = {}}
  for i, wanted in ipairs(take_asked()) do note.todo[i] = cjson.encode(wanted) end
  redis.call('HINCRBY', pending, 'version', 1)
  redis.call('SADD', slot, pending)
  write_note(pending, op, note)
  return work_of(pending, op, note)
end

-- settle: an operation says that its effects, computed at `version`, have been applied.
-- KEYS pending, slot   ARGV op, version ('' if they could not be applied in time)   Reply nil when done, else work
--
-- If the owner has not moved on since, they were the last word. If it has, ours may have overwritten newer ones:
-- another operation that is still under way takes over (it is marked dirty, so it will compute once more); if there
-- is none, we compute again from the facts as they are now, and settle again.
local function settle(keys, args)
  local pending, slot, op, version = keys[1], keys[2], args[1], args[2]
  local note = read_note(pending, op)
  if not note then return nil end -- a worker took it over
  if version == redis.call('HGET', pending, 'version') and not note.dirty then
    return drop_note(pending, slot, op)
  end
  local other = another_op(pending, op)
  if other then
    local theirs = read_note(pending, other)
    theirs.dirty = true
    merge_todo(theirs, note)
    write_note(pending, other, theirs)
    return drop_note(pending, slot, op)
  end
  note.at, note.dirty = clock_ms(), nil
  write_note(pending, op, note)
  return work_of(pending, op, note)
end

-- take: a worker takes over the notes whose callers are gone for sure.
-- KEYS pending, slot   ARGV op (the worker's), age_ms   Reply nil if there is none, else work
--
-- `age_ms` is well above EFFECT_MS, so no effect of theirs can land any more: apply() would refuse it.
local function take(keys, args)
  local pending, slot, op = keys[1], keys[2], args[1]
  local oldest, taken = clock_ms() - tonumber(args[2]), nil
  local fields = redis.call('HGETALL', pending)
  if #fields == 0 then redis.call('SREM', slot, pending) end
  for i = 1, #fields, 2 do
    local note = fields[i] ~= 'version' and cjson.decode(fields[i + 1])
    if note and note.at <= oldest then
      taken = taken or {at = clock_ms(), todo = {}}
      merge_todo(taken, note)
      redis.call('HDEL', pending, fields[i])
    end
  end
  if not taken then return nil end
  write_note(pending, op, taken)
  return work_of(pending, op, taken)
end

local function refuse_late(deadline)
  if deadline ~= '' and clock_ms() > tonumber(deadline) then
    fail('too_late', 'This effect came too late to be applied.')
  end
end

-- apply: one effect, unless it is too late.   KEYS key   ARGV deadline, command, arguments after the key
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

local function question(name, answer)
  register(name, answer, {'no-writes'})
end

local function verb(name, act)
  verbs[name] = act
  if not CLUSTERED then
    register(name, function(keys, args)
      asked = {}
      local reply = act(keys, args)
      run_effects()
      return reply
    end)
    return
  end
  -- KEYS the owner's, then pending, slot   ARGV op, deadline ('' for none), then the verb's   Reply {reply, work}
  register(name, function(keys, args)
    asked = {}
    local slot, pending = table.remove(keys), table.remove(keys)
    local op, deadline = table.remove(args, 1), table.remove(args, 1)
    refuse_late(deadline)
    local reply = act(keys, args)
    if reply == nil then reply = false end
    if #asked == 0 then return {reply} end
    return {reply, leave_note(pending, slot, op)}
  end)
end

if CLUSTERED then
  register('settle', settle)
  register('take', take)
  register('apply', apply)
end
