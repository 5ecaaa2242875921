"""What the moves of a job record have in common, as Lua functions; and the keys that they work on.

Keys (none of them shared with Celery's): `job:<id>` the record, a hash; `job:<id>:request` until the job is terminal;
`job:<id>:result` once it is completed, and with it `job:<id>:artifacts`, a hash of compressed texts, where any were
asked for; `job:<id>:owner` while somebody works on it, expiring when he stops saying so;
`jobs:all`, `jobs:state:<state>` and `batch:<id>` by time of submission; `jobs:finished` by time of finishing;
`batch:<id>:open` how many of it are not terminal, `batch:<id>:bodies` a fingerprint of all its bodies where they came
under an idempotency key; `jobs:counters`, a hash. Of jobs that came with an API key: `jobs:key:<key>` by time of
submission, `jobs:open:<key>` those that are not terminal, `jobs:key_of` whose each is, until cleanup.
`jobs:bytes:of_key` has, by key, what of `jobs:bytes:kept` is its.
`jobs:deadlines` has the queued jobs that have one, by the time at which it passes. `jobs:bytes` has about what each
job takes, its request or its result, until cleanup, and `jobs:bytes:kept` the sum. Those of the queue are in
`tasks/jobs/queue_lua_lib.py`. Of `tasks/fleet/heartbeat.py`'s, `workers`, `workers:gpu`, `gpus` and `worker:<name>` are
read; of `tasks/fleet/quarantine.py`'s, `workers:quarantined` is read and `workers:faults` counted. Jobs that have ended
go into `traces:due` of `tasks/jobs/trace_queue.py`. Redis Cluster is not supported (nor is it by Celery).
"""

from __future__ import annotations

from tasks.jobs import queue_lua_lib
from tasks.jobs.webhook_outbox import WEBHOOKS

BUCKETS_S = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
)
"""Upper bounds of the histograms of `observe`, each of which counts what is above the one before it."""

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

-- Strictly rising, so that no two jobs share a place in a list that is paged by time.
local function stamp()
  local at = math.max(now, tonumber(redis.call('GET', 'jobs:stamp') or '0') + 0.000001)
  redis.call('SET', 'jobs:stamp', text(at))
  return text(at)
end

-- What is kept of requests and results, with 2 KiB for the rest of each record (docs/measurements.md). Not asked of the
-- records when they go, since they may have expired by then.
local record_bytes = 2048
local function kept_bytes() return tonumber(redis.call('GET', 'jobs:bytes:kept') or '0') end
local function bytes_of_key(key) return tonumber(redis.call('HGET', 'jobs:bytes:of_key', key) or '0') end
local function charge(key, size)
  if not key then return end
  local left = bytes_of_key(key) + size
  -- Below zero by jobs of an earlier version, which charged no key.
  redis.call('HSET', 'jobs:bytes:of_key', key, left)
  if left <= 0 then redis.call('HDEL', 'jobs:bytes:of_key', key) end
end
local function weigh(size)
  local before = tonumber(redis.call('HGET', 'jobs:bytes', id) or '0')
  redis.call('HSET', 'jobs:bytes', id, size + record_bytes)
  redis.call('INCRBY', 'jobs:bytes:kept', size + record_bytes - before)
  charge(redis.call('HGET', 'jobs:key_of', id), size + record_bytes - before)
end
-- Texts beside a result, as names and contents in turn; what they take.
local function keep_texts(texts, ttl)
  local size = 0
  for _, part in ipairs(texts) do size = size + #part end
  if size > 0 then
    redis.call('HSET', job .. ':artifacts', unpack(texts))
    redis.call('EXPIRE', job .. ':artifacts', ttl)
  end
  return size
end

local function lighten(each)
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

local function spent(...)
  local total = nil
  for _, stage in ipairs({...}) do
    local seconds = tonumber(get('spent:' .. stage))
    if seconds then total = (total or 0) + seconds end
  end
  return total
end

-- For how long it held the device; nil where it did not: 'inspect' is entered where there is nothing to look into, too.
local function ran()
  local judged = spent('load', 'validate', 'time')
  return judged and judged + (spent('inspect') or 0)
end

-- What of a worker it took.
local function worked() return (spent('build') or 0) + (ran() or 0) end

"""
)

_MOVES = """
local function release()
  redis.call('HDEL', 'jobs:messages', get('message'))
end

-- `cause`: the verdict of a completed job, else why it ended so.
local function finish(state, cause, ttl)
  local batch, key = get('batch_id'), get('key_id')
  if key ~= '' then redis.call('SREM', 'jobs:open:' .. key, id) end
  note('done', now, get('attempt'))
  move(state, 'done', now)
  leave()
  release()
  settle(worked())
  redis.call('ZREM', 'jobs:deadlines', id)
  redis.call('ZADD', 'jobs:finished', text(now), id)
  redis.call('DEL', job .. ':request', job .. ':owner')
  weigh(0)
  redis.call('EXPIRE', job, ttl)
  redis.call('HSET', job, 'cause', cause)
  count(state)
  count(table.concat({'ended', get('kernel_type'), get('operation'), state, cause}, ':'))
  redis.call('PUBLISH', 'jobs:ended', id)
  -- Told to who asked for that (`tasks/jobs/webhook_outbox.py`).
  if redis.call('EXISTS', job .. ':webhook') == 1 then
    redis.call('HSET', job, 'webhook', '{"state":"pending","attempts":0,"last_error":null}')
    tell_webhook(id, text(now))
  end
  if batch ~= '' and redis.call('DECR', 'batch:' .. batch .. ':open') <= 0 then
    redis.call('EXPIRE', 'batch:' .. batch, ttl)
    redis.call('EXPIRE', 'batch:' .. batch .. ':open', ttl)
    redis.call('EXPIRE', 'batch:' .. batch .. ':bodies', ttl)
  end
  if redis.call('EXISTS', 'traces:wanted') == 1 then
    redis.call('RPUSH', 'traces:due', cjson.encode({job = id}))
    redis.call('LTRIM', 'traces:due', -10000, -1)
  end
end

-- Writes down an attempt that ended by a fault of ours, so that it can be told, and that another worker has the next.
-- `proven`: not by the text of a submission's process alone, which must not quarantine a worker.
local function blame(reason, proven)
  local worker, before, tried = get('worker'), get('failed_attempts'), get('tried')
  local entry = '{"attempt":' .. get('attempt') .. ',"worker":' .. cjson.encode(worker) .. ',"stage":"' .. get('stage')
                .. '","at":' .. text(now) .. ',"reason":' .. cjson.encode(reason) .. '}'
  redis.call('HSET', job, 'failed_attempts', before == '' and entry or before .. ',' .. entry,
             'tried', (tried == '' and '\\n' or tried) .. worker .. '\\n')
  if proven then redis.call('HINCRBY', 'workers:faults', worker, 1) end
end

-- Whether a queued job has not been begun in the time that its request gave it.
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

FUNCTIONS = _CORE + WEBHOOKS + queue_lua_lib.FUNCTIONS + _MOVES
