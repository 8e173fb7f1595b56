-- What every Plaza library starts with. The loader writes before it:
--   LIBRARY    the domain's name            VERSION    a hash of the whole source
--   CLUSTERED  whether keys have braces     PROJECTION_MS  how long effects may take to be applied
--   key        the catalogue's names, as functions of their parts
--
-- A library is made of verbs, questions and recipes.
--
-- A *verb* checks, changes the facts of its one owner, and says which effects that has:
--     command('like', function(keys, args) … project('ranked', post, tag) … return reply end)
-- A *question* only reads:  query('page', function(keys, args) … end)
-- A *recipe* is what some other key should say about an owner, computed from that owner's facts as they are now:
--     projection('ranked', function(post, tag) return {'ZADD', key.hashtag_ranked(tag), score, post} end)
-- It returns one command on one key, several in a table, or nil for none. Its result is absolute and repeatable
-- (`ZADD` of a computed score, never a bare `INCR`), for it may be applied twice, or again later. For one subject it
-- always speaks of the same keys: what it would add on some facts, it removes on others. Where the other
-- key is itself a fact with effects of its own, the recipe returns perform('verb', {keys}, {args}).
--
-- On one server a verb's effects run at once, inside the same atomic function. On a cluster the other keys live
-- elsewhere, so the verb leaves a note beside its facts and returns the commands: its caller applies them and settles
-- the note; if the caller dies, a worker does. Settling is what keeps two operations' effects, which may arrive in
-- either order, from leaving an old value behind: see settle() below.

local commands_by_name, projections, subjects = {}, {}, {}
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

-- Refuses what a job writes after it has lost its lease. `kept` is a key beside the facts it guards that remembers the
-- highest fencing token seen (on one server the job's own key.fence() will do); a token of '' is not under a lease.
local function fence(kept, token)
  if token == '' then return end
  local given, highest = tonumber(token), tonumber(redis.call('GET', kept) or 0)
  if given < highest then fail('fenced', 'Another run has taken over.') end
  if given > highest then redis.call('SET', kept, token) end
end

-- Numbers as text that loses nothing: a Lua number in a reply or an argument would be cut to an integer.
local function text(value)
  if type(value) ~= 'number' then return value end
  if value == math.floor(value) and math.abs(value) < 1e15 then return string.format('%.0f', value) end
  return string.format('%.17g', value)
end

-- `subject` is how many of its arguments, from the first, say what the recipe speaks of; all of them if it is left out.
-- The rest may differ from one operation to the next (a time, a text) without making it another statement:
-- two operations that speak of the same must know each other.
local function projection(name, compute, subject)
  projections[name] = compute
  subjects[name] = subject
end

-- Asks for a recipe's commands once the verb is through. Recipes get their arguments as text, in both layouts.
local function project(name, ...)
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
  project('event', stream, ...)
end
projection('event', function(stream, ...)
  return {'XADD', key.events(stream), '*', ...}
end)

-- Appends the commands that a recipe gives now.
local function compute(commands, wanted)
  local result = projections[wanted[1]](unpack(wanted, 2))
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
local function run_projections()
  while #asked > 0 do
    local commands = {}
    for _, wanted in ipairs(take_asked()) do compute(commands, wanted) end
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

-- Cluster. The owner's `pending` hash holds, until all is settled:
--   <op>         the note of an operation: {at = when its effects were computed, todo = {statement, …},
--                dirty = {subject = true, …}}
--   <subject>    the operation that spoke of it last
-- A statement is a recipe's name with its arguments, as JSON, and its subject the part of them that says of what; `slot` is the set by which a worker finds the hash.

local function subject_of(statement)
  local wanted = cjson.decode(statement)
  local size = subjects[wanted[1]]
  return size and cjson.encode({unpack(wanted, 1, 1 + size)}) or statement
end

local function read_outbox_entry(pending, op)
  local note = redis.call('HGET', pending, op)
  return note and cjson.decode(note)
end

-- Writes the note of an operation that is about to compute all of its recipes, and returns what its caller has to do:
-- {op, deadline, command, …}
local function work_of(pending, slot, op, todo)
  local note = {at = clock_ms(), todo = todo}
  local fields = {op, cjson.encode(note)}
  local work = {op, text(note.at + PROJECTION_MS)}
  for _, statement in ipairs(todo) do
    fields[#fields + 1] = subject_of(statement)
    fields[#fields + 1] = op
    compute(work, cjson.decode(statement))
  end
  redis.call('HSET', pending, unpack(fields))
  redis.call('SADD', slot, pending)
  return work
end

-- Appends a statement, unless its subject is there.
local function add_once(todo, there, statement)
  local subject = subject_of(statement)
  if there[subject] then return end
  there[subject] = true
  todo[#todo + 1] = statement
end

local function write_outbox_entry(pending, slot, op)
  local todo, there = {}, {}
  for _, wanted in ipairs(take_asked()) do add_once(todo, there, cjson.encode(wanted)) end
  return work_of(pending, slot, op, todo)
end

local function mark_dirty(pending, op, subject)
  local note = read_outbox_entry(pending, op)
  note.dirty = note.dirty or {}
  note.dirty[subject] = true
  redis.call('HSET', pending, op, cjson.encode(note))
end

-- settle: an operation says that its effects have been applied.
-- KEYS pending, slot   ARGV op, late ('1' if some were refused)   Reply nil when done, else work
--
-- For each subject: if nobody has spoken of it since, ours was the last word. If a later operation has and is still
-- under way, ours may have landed on top of its: it is marked dirty there, and that operation will compute it once more.
-- If the later one is gone already, we compute it again ourselves, from the facts as they are now.
local function settle(keys, args)
  local pending, slot, op, late = keys[1], keys[2], args[1], args[2] == '1'
  local note = read_outbox_entry(pending, op)
  if not note then return nil end -- a worker took it over
  local again, done = {}, {op}
  for _, statement in ipairs(note.todo) do
    local subject = subject_of(statement)
    local latest = redis.call('HGET', pending, subject)
    if latest and latest ~= op then
      mark_dirty(pending, latest, subject)
    elseif latest and not late and not (note.dirty and note.dirty[subject]) then
      done[#done + 1] = subject
    else
      again[#again + 1] = statement
    end
  end
  redis.call('HDEL', pending, unpack(done))
  if #again > 0 then return work_of(pending, slot, op, again) end
  if redis.call('EXISTS', pending) == 0 then redis.call('SREM', slot, pending) end
end

-- take: a worker takes over the notes whose callers are gone for sure.
-- KEYS pending, slot   ARGV op (the worker's), age_ms   Reply nil if there is none, else work
--
-- `age_ms` is well above PROJECTION_MS, so no effect of theirs can land any more: apply() would refuse it.
local function take(keys, args)
  local pending, slot, op = keys[1], keys[2], args[1]
  local oldest, todo, there = clock_ms() - tonumber(args[2]), {}, {}
  local fields = redis.call('HGETALL', pending)
  for i = 1, #fields, 2 do
    local note = fields[i + 1]:sub(1, 1) == '{' and cjson.decode(fields[i + 1])
    if note and note.at <= oldest then
      redis.call('HDEL', pending, fields[i])
      for _, statement in ipairs(note.todo) do add_once(todo, there, statement) end
    end
  end
  if #todo > 0 then return work_of(pending, slot, op, todo) end
  if #fields == 0 then redis.call('SREM', slot, pending) end
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

local function query(name, answer)
  register(name, answer, {'no-writes'})
end

local function command(name, act)
  commands_by_name[name] = act
  if not CLUSTERED then
    register(name, function(keys, args)
      asked = {}
      local reply = act(keys, args)
      run_projections()
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
    return {reply, write_outbox_entry(pending, slot, op)}
  end)
end

if CLUSTERED then
  register('settle', settle)
  register('take', take)
  register('apply', apply)
end
