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

-- Another service may have written a key with the wrong type. A query reads it as if it were absent: after such an error it
-- runs again, with read_or_absent() instead of redis.call. This table makes the two exchangeable. Valkey's functions can be
-- read only when a function runs, so the first use of each replaces what is here.
local function valkey_functions() return redis end
local redis = {register_function = redis.register_function}

local function use_at_run_time(name)
  redis[name] = function(...)
    redis[name] = valkey_functions()[name]
    return redis[name](...)
  end
end

use_at_run_time('call')
use_at_run_time('pcall')
use_at_run_time('error_reply')
use_at_run_time('sha1hex')

local function is_wrong_type(message) return string.sub(message, 1, 9) == 'WRONGTYPE' end

local function read_or_absent(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and is_wrong_type(reply.err) then
    local name, k = ...
    local absent = string.find(k, '{', 1, true) and k .. ':absent' or '{' .. k .. '}:absent' -- in the same slot
    reply = redis.pcall(name, absent, select(3, ...))
  end
  if type(reply) == 'table' and reply.err then error(reply) end
  return reply
end

local function run_query(callback, keys, args)
  local ok, reply = pcall(callback, keys, args)
  if not ok and is_wrong_type(reply) then
    local call = redis.call
    redis.call = read_or_absent
    ok, reply = pcall(callback, keys, args)
    redis.call = call
  end
  if not ok then error({err = reply}) end -- pcall() has made a text of the error
  return reply
end

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

-- Rejects an update of a caller that stalled (cluster).
local function refuse_late(deadline)
  if deadline ~= '' and clock_ms() > tonumber(deadline) then
    fail('too_late', 'This update came too late to be applied.')
  end
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

-- Formats numbers without loss: Valkey would cut a Lua number in a reply to an integer (in an argument of a command it does not).
local function text(value)
  if type(value) ~= 'number' then return value end
  if value == math.floor(value) and math.abs(value) < 1e15 then return string.format('%.0f', value) end
  return string.format('%.17g', value)
end

-- Parses a number that another service may have written. Returns `default` for anything but a finite number; tonumber()
-- alone accepts 'nan', 'inf', '0x10' and what precedes a zero byte. A missing field, which is false, is not a number.
local function finite(value, default)
  local number = tonumber(value)
  if not number or not (number > -2 ^ 62 and number < 2 ^ 62) then return default end
  if type(value) == 'string' then
    local first = value:byte()
    local may_be_hexadecimal = (first < 49 or first > 57) and #value > 1 -- it does not begin with 1 to 9
    if #value > 400 or value:find('\0', 1, true) or (may_be_hexadecimal and value:find('[xX]')) then return default end
  end
  return number
end

-- Returns the number after `last`, for what must never get a number twice: fencing tokens, versions, revisions, tickets. It is
-- at least the time in milliseconds, because a failover can lose the last number: counted on from the one before, the next
-- one would equal a number that others have seen.
local function next_number(last)
  return text(math.max(math.floor(finite(last, 0)) + 1, clock_ms()))
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

-- Returns a call of a command: on one server {'PERFORM', name, keys, args}, on a cluster all words in one list, for the caller.
local function perform(name, keys, args)
  if not CLUSTERED then
    for i = 1, #args do args[i] = text(args[i]) end
    return {'PERFORM', name, keys, args}
  end
  local call = {'PERFORM', name, #keys}
  for _, k in ipairs(keys) do call[#call + 1] = k end
  for _, a in ipairs(args) do call[#call + 1] = text(a) end
  return call
end

-- What projections share while the updates of a command are computed. Nothing is applied meanwhile, so it stays true.
local shared = {}

-- Computes an update and appends its Valkey commands to a list.
local function append_commands(commands, update)
  local result = projections[update[1]](unpack(update, 2))
  if not result or #result == 0 then return end
  if type(result[1]) ~= 'table' then
    commands[#commands + 1] = result
  else
    for i = 1, #result do commands[#commands + 1] = result[i] end
  end
end

local function take_requested()
  local taken = requested
  requested, shared = {}, {}
  return taken
end

-- One server: applies updates until none is left. A performed command can request more.
local function run_projections()
  while #requested > 0 do
    local commands = {}
    local updates = take_requested()
    for i = 1, #updates do append_commands(commands, updates[i]) end
    for i = 1, #commands do
      local command = commands[i]
      if command[1] == 'PERFORM' then
        commands_by_name[command[2]](command[3], command[4])
      else
        redis.call(unpack(command))
      end
    end
  end
end
