"""The moves of a job record as Lua: each is one atomic step in Redis, counters included.

Keys (none of them shared with Celery's): `job:<id>` the record, a hash; `job:<id>:request` until the job is terminal;
`job:<id>:result` once it is completed; `job:<id>:owner` while somebody works on it, expiring when he stops saying so;
`jobs:all`, `jobs:state:<state>` and `batch:<id>` by time of submission; `jobs:queue` by time of queueing;
`jobs:finished` by time of finishing; `jobs:counters`, a hash. Of `tasks/heartbeat.py`'s, `workers` and `worker:<name>`
are read. Redis Cluster is not supported (nor is it by Celery).
"""

from __future__ import annotations

CHANNEL = "jobs:changed"
COUNTERS = "jobs:counters"

_COMMON = """
local id = ARGV[1]
local job = 'job:' .. id
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000

local function text(at) return string.format('%.6f', at) end
local function get(field) return redis.call('HGET', job, field) or '' end
local function count(name, by) redis.call('HINCRBY', 'jobs:counters', name, by or 1) end

-- Strictly rising, so that no two jobs share a place in a list that is paged by time.
local function stamp()
  local at = math.max(now, tonumber(redis.call('GET', 'jobs:stamp') or '0') + 0.000001)
  redis.call('SET', 'jobs:stamp', text(at))
  return text(at)
end

local function observe(name, seconds)
  local function field(part) return name .. ':' .. part end
  count(field('count'))
  redis.call('HINCRBYFLOAT', 'jobs:counters', field('sum'), text(seconds))
  local low = tonumber(redis.call('HGET', 'jobs:counters', field('min')) or '') or seconds
  local high = tonumber(redis.call('HGET', 'jobs:counters', field('max')) or '') or seconds
  redis.call('HSET', 'jobs:counters', field('min'), text(math.min(low, seconds)),
             field('max'), text(math.max(high, seconds)))
end

-- True for the worker that still holds this attempt; false for one that was given up, and once the job is terminal.
local function held(attempt)
  local state = get('state')
  return (state == 'building' or state == 'waiting' or state == 'running') and get('attempt') == attempt
end

local function note(stage, at, attempt, reason)
  local entry = '{"stage":"' .. stage .. '","at":' .. text(at) .. ',"attempt":' .. attempt
  if reason then entry = entry .. ',"reason":' .. cjson.encode(reason) end
  local before = get('timeline')
  if before ~= '' then before = before .. ',' end
  redis.call('HSET', job, 'timeline', before .. entry .. '}')
end

local function move(state, stage, at)
  redis.call('HINCRBYFLOAT', job, 'spent:' .. get('stage'), text(math.max(0, at - get('since'))))
  redis.call('ZREM', 'jobs:state:' .. get('state'), id)
  redis.call('ZADD', 'jobs:state:' .. state, get('submitted_at'), id)
  redis.call('HSET', job, 'state', state, 'stage', stage, 'since', text(at))
  redis.call('PUBLISH', 'jobs:changed', id)
end

local function spent(...)
  local total = nil
  for _, stage in ipairs({...}) do
    local seconds = tonumber(get('spent:' .. stage))
    if seconds then total = (total or 0) + seconds end
  end
  return total
end

local function finish(state, ttl)
  local worker, batch = get('worker'), get('batch_id')
  note('done', now, get('attempt'))
  move(state, 'done', now)
  redis.call('ZREM', 'jobs:queue', id)
  redis.call('ZADD', 'jobs:finished', text(now), id)
  redis.call('DEL', job .. ':request', job .. ':owner')
  redis.call('EXPIRE', job, ttl)
  count(state)
  local run = spent('load', 'validate', 'time')
  if run then redis.call('HINCRBYFLOAT', 'jobs:counters', 'run_seconds_by_worker:' .. worker, text(run)) end
  if batch ~= '' and redis.call('DECR', 'batch:' .. batch .. ':open') <= 0 then
    redis.call('EXPIRE', 'batch:' .. batch, ttl)
    redis.call('EXPIRE', 'batch:' .. batch .. ':open', ttl)
  end
end

-- Writes down an attempt that ended by a fault of ours, so that it can be told, and that another worker has the next.
local function blame(reason)
  local worker, before, tried = get('worker'), get('failed_attempts'), get('tried')
  local entry = '{"attempt":' .. get('attempt') .. ',"worker":' .. cjson.encode(worker) .. ',"stage":"' .. get('stage')
                .. '","at":' .. text(now) .. ',"reason":' .. cjson.encode(reason) .. '}'
  redis.call('HSET', job, 'failed_attempts', before == '' and entry or before .. ',' .. entry,
             'tried', (tried == '' and '\\n' or tried) .. worker .. '\\n')
end

local function tried(worker) return string.find(get('tried'), '\\n' .. worker .. '\\n', 1, true) ~= nil end

-- A living worker that has not failed this job yet, the one with the fewest messages of its own; '' without one.
local function elsewhere()
  local best, fewest = '', math.huge
  if get('tried') == '' then return best end
  for _, worker in ipairs(redis.call('SMEMBERS', 'workers')) do
    if not tried(worker) and redis.call('EXISTS', 'worker:' .. worker) == 1 then
      local length = redis.call('LLEN', 'evaluate.' .. worker)
      if length < fewest then best, fewest = worker, length end
    end
  end
  return best
end

local function fail(ttl, reason)
  redis.call('HSET', job, 'error', get('history') .. reason)
  finish('failed', ttl)
end
"""

# id, operation, kernel type, timeout, batch id or '', request
CREATE = (
    _COMMON
    + """
if redis.call('EXISTS', job) == 1 then return get('submitted_at') end
local at, batch = stamp(), ARGV[5]
redis.call('HSET', job, 'operation', ARGV[2], 'kernel_type', ARGV[3], 'timeout', ARGV[4], 'batch_id', batch,
           'state', 'queued', 'stage', 'queued', 'attempt', 0, 'submitted_at', at, 'since', at)
redis.call('SET', job .. ':request', ARGV[6])
note('queued', at, 1)
redis.call('ZADD', 'jobs:all', at, id)
redis.call('ZADD', 'jobs:state:queued', at, id)
redis.call('ZADD', 'jobs:queue', at, id)
if batch ~= '' then
  redis.call('ZADD', 'batch:' .. batch, at, id)
  redis.call('INCR', 'batch:' .. batch .. ':open')
end
redis.call('HSETNX', 'jobs:counters', 'counting_since', at)
count('submitted')
count('by_kernel_type:' .. ARGV[3])
count('by_operation:' .. ARGV[2])
count('submitted_ms', math.floor(at * 1000))
redis.call('PUBLISH', 'jobs:changed', id)
return at
"""
)

# id, worker, the attempt that the message is for or '', seconds until the owner counts as gone
CLAIM = (
    _COMMON
    + """
if get('state') ~= 'queued' then return false end
local attempt = get('attempt') + 1
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= attempt then return false end
if tried(ARGV[2]) and elsewhere() ~= '' then return false end
redis.call('HSET', job, 'attempt', attempt, 'worker', ARGV[2])
redis.call('ZREM', 'jobs:queue', id)
redis.call('SET', job .. ':owner', attempt, 'EX', ARGV[4])
note('build', now, attempt)
move('building', 'build', now)
return {attempt, redis.call('GET', job .. ':request')}
"""
)

# id, attempt, state, stage, seconds since the stage began
ADVANCE = (
    _COMMON
    + """
if not held(ARGV[2]) then return 0 end
if get('stage') ~= ARGV[4] then
  local at = math.max(now - ARGV[5], tonumber(get('since')))
  note(ARGV[4], at, ARGV[2])
  move(ARGV[3], ARGV[4], at)
end
return 1
"""
)

# id, attempt, seconds until the owner counts as gone
PULSE = (
    _COMMON
    + """
if not held(ARGV[2]) then return 'lost' end
redis.call('SET', job .. ':owner', ARGV[2], 'EX', ARGV[3])
return get('cancel_requested') ~= '' and 'cancel' or 'go on'
"""
)

# id, attempt, ttl, result, names to count (JSON list)
COMPLETE = (
    _COMMON
    + """
if not held(ARGV[2]) then return 0 end
redis.call('SET', job .. ':result', ARGV[4], 'EX', ARGV[3])
finish('completed', ARGV[3])
for _, name in ipairs(cjson.decode(ARGV[5])) do count(name) end
observe('queue_seconds', spent('queued'))
observe('build_seconds', spent('build'))
local waited, ran = spent('wait_for_device'), spent('load', 'validate', 'time')
if waited then observe('device_wait_seconds', waited) end
if ran then observe('run_seconds', ran) end
observe('end_to_end_seconds', now - get('submitted_at'))
return 1
"""
)

# id, attempt, ttl, error
FAIL = (
    _COMMON
    + """
if not held(ARGV[2]) then return 0 end
blame(ARGV[4])
fail(ARGV[3], ARGV[4])
return 1
"""
)

# id, attempt, ttl, reason, attempts allowed
REQUEUE = (
    _COMMON
    + """
if not held(ARGV[2]) then return 0 end
local reason = 'attempt ' .. ARGV[2] .. ' on ' .. get('worker') .. ': ' .. ARGV[4]
blame(ARGV[4])
if get('cancel_requested') ~= '' then
  finish('cancelled', ARGV[3])
  return 0
end
if tonumber(ARGV[2]) >= tonumber(ARGV[5]) then
  fail(ARGV[3], reason)
  return 0
end
redis.call('HSET', job, 'history', get('history') .. reason .. '\\n')
redis.call('DEL', job .. ':owner')
redis.call('ZADD', 'jobs:queue', stamp(), id)
note('queued', now, ARGV[2] + 1, reason)
move('queued', 'queued', now)
count('requeued')
return 1
"""
)

# id, ttl
CANCEL = (
    _COMMON
    + """
local state = get('state')
if state == 'queued' then
  finish('cancelled', ARGV[2])
elseif held(get('attempt')) and get('cancel_requested') == '' then
  redis.call('HSET', job, 'cancel_requested', text(now))
  redis.call('PUBLISH', 'jobs:changed', id)
end
return 1
"""
)

# id, attempt, ttl
FINISH_CANCELLED = (
    _COMMON
    + """
if not held(ARGV[2]) then return 0 end
finish('cancelled', ARGV[3])
return 1
"""
)

# id
ELSEWHERE = _COMMON + "return elsewhere()"

# id: behind everything that is queued now, because its message is published again
TO_THE_BACK = (
    _COMMON
    + """
if get('state') ~= 'queued' then return false end
redis.call('ZADD', 'jobs:queue', stamp(), id)
return get('attempt') + 1
"""
)

# '', epoch seconds, how many at most
CLEANUP = (
    _COMMON
    + """
local old = redis.call('ZRANGEBYSCORE', 'jobs:finished', '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
for _, each in ipairs(old) do
  local record = 'job:' .. each
  local batch = redis.call('HGET', record, 'batch_id')
  if batch and batch ~= '' then redis.call('ZREM', 'batch:' .. batch, each) end
  count('submitted_ms', -math.floor((redis.call('ZSCORE', 'jobs:all', each) or 0) * 1000))
  for _, index in ipairs({'jobs:all', 'jobs:finished', 'jobs:state:completed', 'jobs:state:failed',
                          'jobs:state:cancelled'}) do
    redis.call('ZREM', index, each)
  end
  redis.call('DEL', record, record .. ':result')
end
return #old
"""
)
