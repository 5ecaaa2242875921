"""The moves of a job record as Lua: each is one atomic step in Redis, counters included.

Their keys are listed in `tasks/record_functions.py`.
"""

from __future__ import annotations

from tasks.record_functions import FUNCTIONS

CHANNEL = "jobs:changed"
COUNTERS = "jobs:counters"

# id, operation, kernel type, timeout, batch id or '', request, key id or '', open jobs that the key may have,
# fingerprint of the request, jobs that may be queued, bytes that may be kept, build timeout or '', queue timeout or ''
# Says what tasks/admission.py reads.
CREATE = (
    FUNCTIONS
    + """
if redis.call('EXISTS', job) == 1 then
  if get('fingerprint') ~= ARGV[9] then return {'other'} end
  return {'known', get('submitted_at')}
end
local key, size = ARGV[7], #ARGV[6]
if key ~= '' and redis.call('SCARD', 'jobs:open:' .. key) >= tonumber(ARGV[8]) then return {'key'} end
if redis.call('ZCARD', 'jobs:queue') >= tonumber(ARGV[10]) then return {'queue'} end
if kept_bytes() + size + record_bytes > tonumber(ARGV[11]) then return {'memory'} end
local at, batch = stamp(), ARGV[5]
redis.call('HSET', job, 'operation', ARGV[2], 'kernel_type', ARGV[3], 'timeout', ARGV[4], 'batch_id', batch,
           'state', 'queued', 'stage', 'queued', 'attempt', 0, 'submitted_at', at, 'since', at,
           'fingerprint', ARGV[9])
redis.call('SET', job .. ':request', ARGV[6])
weigh(size)
if ARGV[12] ~= '' then redis.call('HSET', job, 'build_timeout', ARGV[12]) end
if ARGV[13] ~= '' then
  redis.call('HSET', job, 'queue_timeout', ARGV[13])
  redis.call('ZADD', 'jobs:deadlines', text(at + ARGV[13]), id)
end
note('queued', at, 1)
redis.call('ZADD', 'jobs:all', at, id)
redis.call('ZADD', 'jobs:state:queued', at, id)
redis.call('ZADD', 'jobs:queue', at, id)
if key ~= '' then
  redis.call('HSET', job, 'key_id', key)
  redis.call('SADD', 'jobs:open:' .. key, id)
  redis.call('ZADD', 'jobs:key:' .. key, at, id)
  redis.call('HSET', 'jobs:key_of', id, key)
end
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
return {'new', at}
"""
)

# id, ttl: end a queued job whose time to be begun is over
EXPIRE = (
    FUNCTIONS
    + """
if not overdue() then return 0 end
expire(ARGV[2])
return 1
"""
)

# id, worker, the attempt that the message is for or '', seconds until the owner counts as gone, ttl
CLAIM = (
    FUNCTIONS
    + """
if get('state') ~= 'queued' then return false end
local attempt = get('attempt') + 1
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= attempt then return false end
if tried(ARGV[2]) and elsewhere() ~= '' then return false end
if overdue() then
  expire(ARGV[5])
  return false
end
redis.call('HSET', job, 'attempt', attempt, 'worker', ARGV[2])
redis.call('ZREM', 'jobs:queue', id)
redis.call('ZREM', 'jobs:deadlines', id)
redis.call('SET', job .. ':owner', attempt, 'EX', ARGV[4])
note('build', now, attempt)
move('building', 'build', now)
return {attempt, redis.call('GET', job .. ':request')}
"""
)

# id, attempt, state, stage, seconds since the stage began
ADVANCE = (
    FUNCTIONS
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
    FUNCTIONS
    + """
if not held(ARGV[2]) then return 'lost' end
redis.call('SET', job .. ':owner', ARGV[2], 'EX', ARGV[3])
return get('cancel_requested') ~= '' and 'cancel' or 'go on'
"""
)

# id, attempt, ttl, result, names to count (JSON list), verdict
COMPLETE = (
    FUNCTIONS
    + """
if not held(ARGV[2]) then return 0 end
redis.call('SET', job .. ':result', ARGV[4], 'EX', ARGV[3])
finish('completed', ARGV[6], ARGV[3])
redis.call('HDEL', 'workers:faults', get('worker'))
weigh(#ARGV[4])
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
    FUNCTIONS
    + """
if not held(ARGV[2]) then return 0 end
blame(ARGV[4])
fail(ARGV[3], ARGV[4])
return 1
"""
)

# id, attempt, ttl, reason, attempts allowed
REQUEUE = (
    FUNCTIONS
    + """
if not held(ARGV[2]) then return 0 end
local reason = 'attempt ' .. ARGV[2] .. ' on ' .. get('worker') .. ': ' .. ARGV[4]
blame(ARGV[4])
if get('cancel_requested') ~= '' then
  finish('cancelled', 'requested', ARGV[3])
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
    FUNCTIONS
    + """
local state = get('state')
if state == 'queued' then
  finish('cancelled', 'requested', ARGV[2])
elseif held(get('attempt')) and get('cancel_requested') == '' then
  redis.call('HSET', job, 'cancel_requested', text(now))
  redis.call('PUBLISH', 'jobs:changed', id)
end
return 1
"""
)

# id, attempt, ttl
FINISH_CANCELLED = (
    FUNCTIONS
    + """
if not held(ARGV[2]) then return 0 end
finish('cancelled', 'requested', ARGV[3])
return 1
"""
)

# id
ELSEWHERE = FUNCTIONS + "return elsewhere()"

# id: behind everything that is queued now, because its message is published again
TO_THE_BACK = (
    FUNCTIONS
    + """
if get('state') ~= 'queued' then return false end
redis.call('ZADD', 'jobs:queue', stamp(), id)
return get('attempt') + 1
"""
)

# '', epoch seconds, how many at most
CLEANUP = (
    FUNCTIONS
    + """
local old = redis.call('ZRANGEBYSCORE', 'jobs:finished', '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
for _, each in ipairs(old) do
  local record = 'job:' .. each
  local batch = redis.call('HGET', record, 'batch_id')
  if batch and batch ~= '' then redis.call('ZREM', 'batch:' .. batch, each) end
  -- Not from the record, which may have expired: nothing else would ever take the job off its key's list.
  local key = redis.call('HGET', 'jobs:key_of', each)
  if key then
    redis.call('ZREM', 'jobs:key:' .. key, each)
    redis.call('HDEL', 'jobs:key_of', each)
  end
  count('submitted_ms', -math.floor((redis.call('ZSCORE', 'jobs:all', each) or 0) * 1000))
  for _, index in ipairs({'jobs:all', 'jobs:finished', 'jobs:state:completed', 'jobs:state:failed',
                          'jobs:state:cancelled'}) do
    redis.call('ZREM', index, each)
  end
  redis.call('DEL', record, record .. ':result')
  lighten(each)
end
return #old
"""
)
