"""Lua functions that the state transitions of a job share, and the list of Redis keys that they use.

Keys (none is shared with Celery):
- `job:<id>`: the record, a hash. `job:<id>:request`: until the job is terminal. `job:<id>:result`: once it completed.
- `job:<id>:artifacts`: a hash of compressed texts, with the result, if the request asked for any.
- `job:<id>:owner`: set while a worker runs the job; expires when the worker stops renewing it.
- `jobs:all`, `jobs:state:<state>`, `batch:<id>`: job ids by time of submission. `jobs:finished`: by time of the end.
- `batch:<id>:open`: number of open jobs of the batch. `batch:<id>:bodies`: a fingerprint of all its bodies, if they
  came under an idempotency key.
- `jobs:counters`: a hash of counters.
- `jobs:key:<key>`: the jobs of an API key by time of submission. `jobs:open:<key>`: those that are not terminal.
  `jobs:key_of`: the key of each job, until cleanup.
- `jobs:bytes`: approximate size of each job's request or result, until cleanup. `jobs:bytes:kept`: their sum.
  `jobs:bytes:of_key`: the sum of each API key.
- `jobs:deadlines`: queued jobs with a queue timeout, by the time at which it passes.

`tasks/jobs/queue_script_functions.py` lists the keys of the queues. The scripts also read `workers`, `workers:gpu`,
`gpus` and `worker:<name>` of `tasks/fleet/heartbeat.py`. They read `workers:quarantined` and increment `workers:faults`
of `tasks/fleet/quarantine.py`. Redis Cluster is not supported, because Celery does not support it either.
"""

from __future__ import annotations

from tasks.jobs import queue_script_functions
from tasks.jobs.webhook_outbox import WEBHOOKS

BUCKETS_S = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
)
"""Upper bounds of the histogram buckets of `observe`, in s; each bucket counts the values above the previous bound."""

_CORE = (
    f"local buckets = {{{', '.join(map(str, BUCKETS_S))}}}"
    + """
local id = ARGV[1]
local job = 'job:' .. id
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000

local function text(at) return string.format('%.6f', at) end
local function get(field) return redis.call('HGET', job, field) or '' end
local function count(name, by) redis.call('HINCRBY', 'jobs:counters', name, by or 1) end

-- Strictly increasing, so that no two jobs have the same position in a list that clients page by time.
local function stamp()
  local at = math.max(now, tonumber(redis.call('GET', 'jobs:stamp') or '0') + 0.000001)
  redis.call('SET', 'jobs:stamp', text(at))
  return text(at)
end

-- Bytes of requests and results, plus 2 KiB for the rest of each record (docs/measurements.md). The sizes are stored
-- apart from the records, because a record may have expired when its size is subtracted.
local record_bytes = 2048
local function stored_bytes() return tonumber(redis.call('GET', 'jobs:bytes:kept') or '0') end
local function bytes_of_key(key) return tonumber(redis.call('HGET', 'jobs:bytes:of_key', key) or '0') end
local function charge(key, size)
  if not key then return end
  local left = bytes_of_key(key) + size
  -- Below zero for jobs of an earlier version, which counted no bytes for their key.
  redis.call('HSET', 'jobs:bytes:of_key', key, left)
  if left <= 0 then redis.call('HDEL', 'jobs:bytes:of_key', key) end
end
local function set_size(size)
  local before = tonumber(redis.call('HGET', 'jobs:bytes', id) or '0')
  redis.call('HSET', 'jobs:bytes', id, size + record_bytes)
  redis.call('INCRBY', 'jobs:bytes:kept', size + record_bytes - before)
  charge(redis.call('HGET', 'jobs:key_of', id), size + record_bytes - before)
end
-- Stores artifacts, given as alternating names and contents; returns their size.
local function store_artifacts(texts, ttl)
  local size = 0
  for _, part in ipairs(texts) do size = size + #part end
  if size > 0 then
    redis.call('HSET', job .. ':artifacts', unpack(texts))
    redis.call('EXPIRE', job .. ':artifacts', ttl)
  end
  return size
end

local function release_bytes(each)
  local size = tonumber(redis.call('HGET', 'jobs:bytes', each) or '0')
  redis.call('DECRBY', 'jobs:bytes:kept', size)
  redis.call('HDEL', 'jobs:bytes', each)
  charge(redis.call('HGET', 'jobs:key_of', each), -size)
end

local function observe(name, seconds)
  local function field(part) return name .. ':' .. part end
  count(field('count'))
  redis.call('HINCRBYFLOAT', 'jobs:counters', field('sum'), text(seconds))
  local low = tonumber(redis.call('HGET', 'jobs:counters', field('min')) or '') or seconds
  local high = tonumber(redis.call('HGET', 'jobs:counters', field('max')) or '') or seconds
  redis.call('HSET', 'jobs:counters', field('min'), text(math.min(low, seconds)),
             field('max'), text(math.max(high, seconds)))
  for _, bound in ipairs(buckets) do
    if seconds <= bound then
      count(field('le:' .. bound))
      break
    end
  end
end

-- True for the worker that owns this attempt; false for an attempt that was given up, and once the job is terminal.
local function owns_job(attempt)
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

"""
)

_MOVES = """
local function release()
  redis.call('HDEL', 'jobs:messages', get('message'))
end

-- `cause`: the verdict of a completed job, else the reason of its end.
local function finish(state, cause, ttl)
  local batch, key = get('batch_id'), get('key_id')
  if key ~= '' then redis.call('SREM', 'jobs:open:' .. key, id) end
  note('done', now, get('attempt'))
  move(state, 'done', now)
  leave()
  release()
  charge_share(worker_seconds())
  redis.call('ZREM', 'jobs:deadlines', id)
  redis.call('ZADD', 'jobs:finished', text(now), id)
  redis.call('DEL', job .. ':request', job .. ':owner')
  set_size(0)
  redis.call('EXPIRE', job, ttl)
  redis.call('HSET', job, 'cause', cause)
  count(state)
  count(table.concat({'ended', get('kernel_type'), get('operation'), state, cause}, ':'))
  redis.call('PUBLISH', 'jobs:ended', id)
  -- The API delivers the webhook that the request asked for (`tasks/jobs/webhook_outbox.py`).
  if redis.call('EXISTS', job .. ':webhook') == 1 then
    redis.call('HSET', job, 'webhook', '{"state":"pending","attempts":0,"last_error":null}')
    schedule_webhook(id, text(now))
  end
  if batch ~= '' and redis.call('DECR', 'batch:' .. batch .. ':open') <= 0 then
    redis.call('EXPIRE', 'batch:' .. batch, ttl)
    redis.call('EXPIRE', 'batch:' .. batch .. ':open', ttl)
    redis.call('EXPIRE', 'batch:' .. batch .. ':bodies', ttl)
  end
end

-- Records an attempt that ended by a fault of the service, for the API, and so that another worker runs the next one.
-- `proven`: the evidence is more than text from a submission's process, which must not quarantine a worker.
local function record_fault(reason, proven)
  local worker, before, tried = get('worker'), get('failed_attempts'), get('tried')
  local entry = '{"attempt":' .. get('attempt') .. ',"worker":' .. cjson.encode(worker) .. ',"stage":"' .. get('stage')
                .. '","at":' .. text(now) .. ',"reason":' .. cjson.encode(reason) .. '}'
  redis.call('HSET', job, 'failed_attempts', before == '' and entry or before .. ',' .. entry,
             'tried', (tried == '' and '\\n' or tried) .. worker .. '\\n')
  if proven then redis.call('HINCRBY', 'workers:faults', worker, 1) end
end

-- Whether no worker started a queued job within its queue timeout.
local function overdue()
  local deadline = redis.call('ZSCORE', 'jobs:deadlines', id)
  return deadline and get('state') == 'queued' and tonumber(deadline) <= now
end

local function expire(ttl)
  redis.call('HSET', job, 'error_type', 'queue_timeout', 'error', 'not begun within its queue_timeout of '
             .. get('queue_timeout') .. ' s; submit it again, with a longer one or at a quieter time')
  finish('cancelled', 'queue_timeout', ttl)
end

local function fail(ttl, reason)
  redis.call('HSET', job, 'error', get('history') .. reason)
  finish('failed', 'infrastructure_error', ttl)
end
"""

FUNCTIONS = _CORE + WEBHOOKS + queue_script_functions.FUNCTIONS + _MOVES
