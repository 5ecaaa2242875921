-- The record of a job, the bytes that records take, and the counters.
--
-- Keys (none is shared with Celery):
-- - `job:<id>`: the record, a hash. `job:<id>:request`: until it completed. `job:<id>:result`: once it completed.
-- - `job:<id>:artifacts`: a hash of compressed texts, with the result, if the request asked for any.
-- - `job:<id>:owner`: set while a worker runs the job; expires when the worker stops renewing it.
-- - `jobs:all`, `jobs:state:<state>`, `batch:<id>`: job ids by time of submission. `jobs:finished`: by time of the end.
-- - `batch:<id>:bodies`: a fingerprint of all bodies of the batch, if they came under an idempotency key.
-- - `jobs:counters`: a hash of counters. `jobs:stamp`: the last time of submission.
-- - `jobs:key:<key>`: the jobs of an API key by time of submission. `jobs:open:<key>`: those that are not terminal.
-- - `jobs:names:<key>`: the names of an API key's jobs, all with score 0. `jobs:name:<key>:<name>`: the jobs of that name
--   by time of submission. With an empty key: of all jobs.
-- - `jobs:bytes:kept`: approximate size of all requests and results. `jobs:bytes:of_key`: the sum of each API key.
-- - `jobs:deadlines`: queued jobs with a queue timeout, by the time at which it passes.
--
-- Nothing of a job expires by itself: `cleanup_jobs.lua` deletes all of it. `queue.lua` lists the keys of the queues.
-- The scripts also read `workers`, `workers:gpu`, `gpus` and `worker:<name>` of `tasks/fleet/heartbeat.py`. They read
-- `workers:quarantined` and increment `workers:faults` of `tasks/fleet/quarantine.py`. No script declares its KEYS: it learns most of them from records. Redis Cluster is thus
-- not supported; Celery does not support it either.

local id, job

-- The job that the functions below change: that of the argument, or the one that the script chooses.
local function select_job(each) id, job = each, 'job:' .. each end
if arg.id then select_job(arg.id) end

local function get(field) return redis.call('HGET', job, field) or '' end
local function count(name, by) redis.call('HINCRBY', 'jobs:counters', name, by or 1) end

-- A part of an index of jobs, another one each time: to look at all of a long one would hold Redis up, and the first of a
-- queue may wait for ever, such as for a GPU that is away.
local function part(index, limit)
  local parts = math.max(1, math.ceil(redis.call('ZCARD', index) / limit))
  local from = clock[2] % parts * limit
  return redis.call('ZRANGE', index, from, from + limit - 1)
end

-- Those that see a job in lists: all without an API key, and its own key.
local function viewers(key) return (key or '') == '' and {''} or {'', key} end

-- Bytes of requests and results, plus 2 KiB for the rest of each record (docs/measurements.md, "Memory"), and its name in
-- two indexes of two viewers.
local function record_bytes(name) return 2048 + 4 * #name end
local function stored_bytes() return tonumber(redis.call('GET', 'jobs:bytes:kept') or '0') end
local function bytes_of_key(key) return tonumber(redis.call('HGET', 'jobs:bytes:of_key', key) or '0') end

-- `bytes`: the size of the job from now on, 0 when it is deleted.
local function set_bytes(bytes)
  local key, added = get('key_id'), bytes - (tonumber(get('bytes')) or 0)
  redis.call('HSET', job, 'bytes', bytes)
  redis.call('INCRBY', 'jobs:bytes:kept', added)
  if key ~= '' and redis.call('HINCRBY', 'jobs:bytes:of_key', key, added) == 0 then
    redis.call('HDEL', 'jobs:bytes:of_key', key)
  end
end

local function set_size(size) set_bytes(size + record_bytes(get('name'))) end

-- Stores artifacts, given as alternating names and contents; returns their size.
local function store_artifacts(texts)
  local size = 0
  for _, part in ipairs(texts) do size = size + #part end
  if size > 0 then redis.call('HSET', job .. ':artifacts', unpack(texts)) end
  return size
end

-- What each state means (`domain/job.py`): a worker runs an active job.
local states = {queued = 'open', building = 'active', waiting = 'active', running = 'active',
                completed = 'ended', failed = 'ended', cancelled = 'ended'}
local function active() return states[get('state')] == 'active' end

-- True for the worker that owns this attempt; false for an attempt that was given up, and once the job is terminal.
local function owns_job() return active() and tonumber(get('attempt')) == arg.attempt end

local function note(stage, at, attempt, reason)
  local entry = '{"stage":"' .. stage .. '","at":' .. text(at) .. ',"attempt":' .. attempt
  if reason then entry = entry .. ',"reason":' .. cjson.encode(reason) end
  local before = get('timeline')
  if before ~= '' then before = before .. ',' end
  redis.call('HSET', job, 'timeline', before .. entry .. '}')
end

local on_the_device = {load = true, validate = true, time = true, inspect = true}

local function move(state, stage, at)
  local before, took = get('stage'), text(math.max(0, at - get('since')))
  redis.call('HINCRBYFLOAT', job, 'spent:' .. before, took)
  if on_the_device[before] then
    redis.call('HINCRBYFLOAT', 'jobs:counters', 'run_seconds_by_worker:' .. get('worker'), took)
  end
  redis.call('ZREM', 'jobs:state:' .. get('state'), id)
  redis.call('ZADD', 'jobs:state:' .. state, get('submitted_at'), id)
  redis.call('HSET', job, 'state', state, 'stage', stage, 'since', text(at))
  redis.call('PUBLISH', 'jobs:changed', id)
end

local function stage_seconds(...)
  local total = nil
  for _, stage in ipairs({...}) do
    local seconds = tonumber(get('spent:' .. stage))
    if seconds then total = (total or 0) + seconds end
  end
  return total
end

-- Seconds on the device; nil without any. Every job enters 'inspect', so that stage alone does not count.
local function device_seconds()
  local evaluated = stage_seconds('load', 'validate', 'time')
  return evaluated and evaluated + (stage_seconds('inspect') or 0)
end

-- Seconds of a worker's time that the job took.
local function worker_seconds() return (stage_seconds('build') or 0) + (device_seconds() or 0) end

-- The attempts that ended by a fault of the service.
local function failed_attempts() return cjson.decode('[' .. get('failed_attempts') .. ']') end
