"""State transitions of a job record, as Lua scripts: each runs as one atomic step in Redis and updates the counters.

`tasks/jobs/job_script_functions.py` lists the Redis keys.
"""

from __future__ import annotations

from tasks.jobs.job_script_functions import FUNCTIONS

CHANNEL, ENDED = "jobs:changed", "jobs:ended"
"""Channels on which job ids are published: at every change, and once when the job ends."""

COUNTERS = "jobs:counters"

READ_JOB = """
local function read_job(each)
  local job = 'job:' .. each
  local stored = redis.call('HGETALL', job)
  if #stored == 0 then return false end
  local place = redis.call('HGET', job, 'place') or ''
  return {stored, redis.call('GET', job .. ':result'), redis.call('ZRANK', 'jobs:queue', place)}
end
"""

# Arguments: id, operation, kernel type, timeout, batch id or '', request, key id or '', maximum open jobs of the key,
# fingerprint of the request, maximum queued jobs, maximum stored bytes, build timeout or '', queue timeout or '',
# priority, GPU model or '', kind of work, digest of the work, queue, '1' if an earlier result may be reused or '',
# ttl, position in the batch or '', webhook or '', seconds to keep the webhook, fingerprint of the batch's bodies or '',
# '1' to return the job as well or '', maximum stored bytes of the key.
# Returns what tasks/jobs/admission.py parses, then the job as READ returns it.
CREATE = (
    FUNCTIONS
    + READ_JOB
    + """
local function created()
  local batch, bodies = ARGV[5], 'batch:' .. ARGV[5] .. ':bodies'
  if ARGV[24] ~= '' and (redis.call('GET', bodies) or ARGV[24]) ~= ARGV[24] then return {'other'} end
  if redis.call('EXISTS', job) == 1 then
    if get('fingerprint') ~= ARGV[9] then return {'other'} end
    return {'known', get('submitted_at')}
  end
  local key, size = ARGV[7], #ARGV[6]
  if key ~= '' and redis.call('SCARD', 'jobs:open:' .. key) >= tonumber(ARGV[8]) then return {'key'} end
  if redis.call('ZCARD', 'jobs:queue') >= tonumber(ARGV[10]) then return {'queue'} end
  if stored_bytes() + size + record_bytes > tonumber(ARGV[11]) then return {'memory'} end
  if key ~= '' and bytes_of_key(key) + size + record_bytes > tonumber(ARGV[26]) then return {'key memory'} end
  if ARGV[15] ~= '' and not has_live_worker(ARGV[15]) then
    return {redis.call('SISMEMBER', 'gpus', ARGV[15]) == 1 and 'gpu away' or 'gpu'}
  end
  local at = stamp()
  redis.call('HSET', job, 'operation', ARGV[2], 'kernel_type', ARGV[3], 'timeout', ARGV[4], 'batch_id', batch,
             'state', 'queued', 'stage', 'queued', 'attempt', 0, 'submitted_at', at, 'since', at,
             'fingerprint', ARGV[9], 'priority', ARGV[14], 'kind', ARGV[16], 'work', ARGV[17])
  if ARGV[15] ~= '' then redis.call('HSET', job, 'gpu', ARGV[15]) end
  redis.call('SET', job .. ':request', ARGV[6])
  if ARGV[22] ~= '' then redis.call('SET', job .. ':webhook', ARGV[22], 'EX', ARGV[23]) end
  if key ~= '' then redis.call('HSET', 'jobs:key_of', id, key) end
  set_size(size)
  if ARGV[21] ~= '' then redis.call('HSET', job, 'batch_index', ARGV[21]) end
  if ARGV[12] ~= '' then redis.call('HSET', job, 'build_timeout', ARGV[12]) end
  if ARGV[13] ~= '' then
    redis.call('HSET', job, 'queue_timeout', ARGV[13])
    redis.call('ZADD', 'jobs:deadlines', text(at + ARGV[13]), id)
  end
  note('queued', at, 1)
  redis.call('ZADD', 'jobs:all', at, id)
  redis.call('ZADD', 'jobs:state:queued', at, id)
  if key ~= '' then
    redis.call('HSET', job, 'key_id', key)
    redis.call('SADD', 'jobs:open:' .. key, id)
    redis.call('ZADD', 'jobs:key:' .. key, at, id)
  end
  if batch ~= '' then
    redis.call('ZADD', 'batch:' .. batch, at, id)
    redis.call('INCR', 'batch:' .. batch .. ':open')
    -- A job that reused a result may have set both to expire; they must persist while a job is open.
    redis.call('PERSIST', 'batch:' .. batch)
    redis.call('PERSIST', 'batch:' .. batch .. ':open')
    if ARGV[24] ~= '' then redis.call('SET', bodies, ARGV[24]) end
  end
  assign_place(ARGV[14], expected(ARGV[16], ARGV[17]), at)
  enter(ARGV[18])
  redis.call('HSETNX', 'jobs:counters', 'counting_since', at)
  count('submitted')
  count('by_kernel_type:' .. ARGV[3])
  count('by_operation:' .. ARGV[2])
  count('submitted_ms', math.floor(at * 1000))
  if ARGV[19] ~= '' then
    local earlier, earlier_at, result = earlier_result(key, ARGV[17], ARGV[15])
    if earlier then
      redis.call('SET', job .. ':result', result, 'EX', ARGV[20])
      redis.call('HSET', job, 'reused_from', earlier, 'reused_at', earlier_at)
      local summary = redis.call('HGET', 'job:' .. earlier, 'summary')
      if summary then redis.call('HSET', job, 'summary', summary) end
      finish('completed', redis.call('HGET', 'job:' .. earlier, 'cause') or 'reused', ARGV[20])
      local texts = redis.call('HGETALL', 'job:' .. earlier .. ':artifacts')
      set_size(#result + #(summary or '') + store_artifacts(texts, ARGV[20]))
      count('reused')
      return {'answered', at}
    end
  end
  return {'new', at}
end

local reply = created()
if ARGV[25] ~= '' then table.insert(reply, read_job(id)) end
return reply
"""
)

# id -> the record, its result, its rank among queued jobs, each false if absent; false for an unknown job
READ = READ_JOB + "return read_job(ARGV[1])"

# id, ttl: end a queued job whose queue timeout has passed
EXPIRE = (
    FUNCTIONS
    + """
if not overdue() then return 0 end
expire(ARGV[2])
return 1
"""
)

# id, attempt, state, stage, seconds since the stage began, interim verdict of the candidate ('1', '0') or ''
ENTER_STAGE = (
    FUNCTIONS
    + """
if not owns_job(ARGV[2]) then return 0 end
if ARGV[6] ~= '' then
  redis.call('HSET', job, 'right', ARGV[6])
  redis.call('PUBLISH', 'jobs:changed', id)
end
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
if not owns_job(ARGV[2]) then return 'lost' end
redis.call('SET', job .. ':owner', ARGV[2], 'EX', ARGV[3])
return get('cancel_requested') ~= '' and 'cancel' or 'go on'
"""
)

# id, attempt, ttl, result, names of counters to increment (JSON list), '1' if the result may be reused or '', summary,
# verdict, then the artifacts: name, bytes, name, bytes, …
COMPLETE = (
    FUNCTIONS
    + """
if not owns_job(ARGV[2]) then return 0 end
redis.call('SET', job .. ':result', ARGV[4], 'EX', ARGV[3])
redis.call('HSET', job, 'summary', ARGV[7])
finish('completed', ARGV[8], ARGV[3])
-- Only an attempt that ran code shows that this worker's device works. A failed build does not, nor does an attempt on
-- another worker.
if get('timeline'):find('"stage":"validate","at":[%d.]+,"attempt":' .. ARGV[2] .. '}') then
  redis.call('HDEL', 'workers:faults', get('worker'))
end
local texts = {unpack(ARGV, 9)}
set_size(#ARGV[4] + #ARGV[7] + store_artifacts(texts, ARGV[3]))
if ARGV[6] ~= '' then register_for_reuse(ARGV[3]) end
for _, name in ipairs(cjson.decode(ARGV[5])) do count(name) end
observe('queue_seconds', stage_seconds('queued'))
observe('build_seconds', stage_seconds('build'))
update_expected(worker_seconds(), ARGV[3])
local waited, held_s = stage_seconds('wait_for_device'), device_seconds()
if waited then observe('device_wait_seconds', waited) end
if held_s then observe('run_seconds', held_s) end
observe('end_to_end_seconds', now - get('submitted_at'))
return 1
"""
)

# id, attempt, ttl, error
FAIL = (
    FUNCTIONS
    + """
if not owns_job(ARGV[2]) then return 0 end
record_fault(ARGV[4], true)
fail(ARGV[3], ARGV[4])
return 1
"""
)

# id, attempt, ttl, reason, maximum attempts, '1' if the fault is proven -> the queue that the job is in now, or 0
REQUEUE = (
    FUNCTIONS
    + """
if not owns_job(ARGV[2]) then return 0 end
local reason = 'attempt ' .. ARGV[2] .. ' on ' .. get('worker') .. ': ' .. ARGV[4]
record_fault(ARGV[4], ARGV[6] == '1')
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
redis.call('HDEL', job, 'right')
release()
note('queued', now, ARGV[2] + 1, reason)
move('queued', 'queued', now)
enter(choose_line())
count('requeued')
return get('line')
"""
)

# id, ttl -> 1 if the job was open: it is cancelled now, or its worker will cancel it
CANCEL = (
    FUNCTIONS
    + """
local state = get('state')
if state == 'queued' then
  finish('cancelled', 'requested', ARGV[2])
elseif owns_job(get('attempt')) and get('cancel_requested') == '' then
  redis.call('HSET', job, 'cancel_requested', text(now))
  redis.call('PUBLISH', 'jobs:changed', id)
end
return (state == 'queued' or owns_job(get('attempt'))) and 1 or 0
"""
)

# id, attempt, ttl
FINISH_CANCELLED = (
    FUNCTIONS
    + """
if not owns_job(ARGV[2]) then return 0 end
finish('cancelled', 'requested', ARGV[3])
return 1
"""
)

# '', epoch seconds, maximum number of jobs to remove
CLEANUP = (
    FUNCTIONS
    + """
local old = redis.call('ZRANGEBYSCORE', 'jobs:finished', '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
for _, each in ipairs(old) do
  local record = 'job:' .. each
  local batch = redis.call('HGET', record, 'batch_id')
  if batch and batch ~= '' then
    redis.call('ZREM', 'batch:' .. batch, each)
    if redis.call('EXISTS', 'batch:' .. batch) == 0 then redis.call('DEL', 'batch:' .. batch .. ':bodies') end
  end
  release_bytes(each)
  -- The record may have expired, so the key comes from an index: nothing else removes the job from its key's list.
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
  redis.call('DEL', record, record .. ':result', record .. ':artifacts')
end
return #old
"""
)
