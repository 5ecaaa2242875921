-- Records a new job as queued, or completes it with the result of an earlier one.
-- Argument:
--   id, operation, kernel_type, timeout, priority, kind, work   facts of the request
--   name, gpu, build_timeout, queue_timeout                     likewise, absent unless the request names them
--   fingerprint           of the request
--   queue                 to enter
--   batch_id, batch_index the job's batch and its position there, if any
--   bodies                fingerprint of all bodies of the batch, if they came under an idempotency key
--   key_id, key_max_jobs  the API key, if any, and its maximum number of open jobs
--   max_queued, max_bytes, max_bytes_of_key
--   webhook               the webhook as stored, if any
--   reuse                 whether an earlier result may be reused
--   keep                  maximum bytes of a request that stays after the end; absent: none stays
--   read                  whether to return the job as well
-- ARGV[2]: the request as JSON.
-- Reply: {outcome, submission time if the job is recorded, the job if it was asked for}. The outcomes 'new', 'known' and
-- 'answered' mean that it is recorded; the others are the values of `tasks.jobs.admission.Refusal`.

local request, key = ARGV[2], arg.key_id

local function refusal(size)
  if key and redis.call('SCARD', 'jobs:open:' .. key) >= arg.key_max_jobs then return 'key' end
  if redis.call('ZCARD', 'jobs:queue') >= arg.max_queued then return 'queue' end
  if stored_bytes() + size > arg.max_bytes then return 'memory' end
  if key and bytes_of_key(key) + size > arg.max_bytes_of_key then return 'key memory' end
  if arg.gpu and not has_live_worker(arg.gpu) then
    return redis.call('SISMEMBER', 'gpus', arg.gpu) == 1 and 'gpu away' or 'gpu'
  end
end

local stored_fields = {'operation', 'kernel_type', 'name', 'timeout', 'build_timeout', 'queue_timeout', 'priority',
                       'gpu', 'kind', 'work', 'fingerprint', 'key_id', 'batch_id', 'batch_index', 'keep'}

local function record(at)
  local fields = {'state', 'queued', 'stage', 'queued', 'attempt', 0, 'submitted_at', at, 'since', at}
  for _, name in ipairs(stored_fields) do
    if arg[name] then
      table.insert(fields, name)
      table.insert(fields, arg[name])
    end
  end
  redis.call('HSET', job, unpack(fields))
  redis.call('SET', job .. ':request', request)
  if arg.webhook then redis.call('SET', job .. ':webhook', arg.webhook) end
  set_size(#request)
  if arg.queue_timeout then redis.call('ZADD', 'jobs:deadlines', text(at + arg.queue_timeout), id) end
  note('queued', at, 1)
  redis.call('ZADD', 'jobs:all', at, id)
  redis.call('ZADD', 'jobs:state:queued', at, id)
  if key then
    redis.call('SADD', 'jobs:open:' .. key, id)
    redis.call('ZADD', 'jobs:key:' .. key, at, id)
  end
  if arg.name then
    for _, viewer in ipairs(viewers(key)) do
      redis.call('ZADD', 'jobs:names:' .. viewer, 0, arg.name)
      redis.call('ZADD', 'jobs:name:' .. viewer .. ':' .. arg.name, at, id)
    end
  end
  if arg.batch_id then redis.call('ZADD', 'batch:' .. arg.batch_id, at, id) end
  if arg.bodies then redis.call('SET', 'batch:' .. arg.batch_id .. ':bodies', arg.bodies) end
end

local function count_submission(at)
  redis.call('HSETNX', 'jobs:counters', 'counting_since', at)
  count('submitted')
  count('by_kernel_type:' .. arg.kernel_type)
  count('by_operation:' .. arg.operation)
  count('submitted_ms', math.floor(at * 1000))
end

-- Completes the job with the result of an earlier one; false if there is none.
local function reuse_result()
  local earlier, earlier_at, result = earlier_result(key or '', arg.work, arg.gpu or '')
  if not earlier then return false end
  redis.call('SET', job .. ':result', result)
  redis.call('HSET', job, 'reused_from', earlier, 'reused_at', earlier_at)
  local summary = redis.call('HGET', 'job:' .. earlier, 'summary')
  if summary then redis.call('HSET', job, 'summary', summary) end
  finish('completed', redis.call('HGET', 'job:' .. earlier, 'cause') or 'reused')
  local texts = redis.call('HGETALL', 'job:' .. earlier .. ':artifacts')
  set_size(#result + #(summary or '') + store_artifacts(texts))
  count('reused')
  return true
end

-- Strictly increasing, so that no two jobs have the same position in a list that clients page by time.
local function stamp()
  local at = text(math.max(now, tonumber(redis.call('GET', 'jobs:stamp') or '0') + 0.000001))
  redis.call('SET', 'jobs:stamp', at)
  return at
end

local function created()
  if arg.bodies and (redis.call('GET', 'batch:' .. arg.batch_id .. ':bodies') or arg.bodies) ~= arg.bodies then
    return {'other'}
  end
  if redis.call('EXISTS', job) == 1 then
    if get('fingerprint') ~= arg.fingerprint then return {'other'} end
    return {'known', get('submitted_at')}
  end
  local refused = refusal(#request + record_bytes(arg.name or ''))
  if refused then return {refused} end
  local at = stamp()
  record(at)
  assign_place(arg.priority, expected(arg.kind, arg.work), at)
  enter(arg.queue)
  count_submission(at)
  return {arg.reuse and reuse_result() and 'answered' or 'new', at}
end

local reply = created()
if arg.read then table.insert(reply, read_job(id)) end
return reply
