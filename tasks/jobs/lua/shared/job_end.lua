-- The end of a job, and of an attempt that the service failed.

local function release()
  redis.call('HDEL', 'jobs:messages', get('message'))
end

-- `cause`: the verdict of a completed job, else the reason of its end.
local function finish(state, cause)
  local key = get('key_id')
  if key ~= '' then redis.call('SREM', 'jobs:open:' .. key, id) end
  note('done', now, get('attempt'))
  move(state, 'done', now)
  leave()
  release()
  charge_share(worker_seconds())
  redis.call('ZREM', 'jobs:deadlines', id)
  redis.call('ZADD', 'jobs:finished', text(now), id)
  redis.call('DEL', job .. ':owner')
  -- A completed job keeps a compressed request among its artifacts (`tasks/jobs/kept_request.py`).
  if state == 'completed' or redis.call('STRLEN', job .. ':request') > (tonumber(get('keep')) or 0) then
    redis.call('DEL', job .. ':request')
  end
  set_size(redis.call('STRLEN', job .. ':request'))
  redis.call('HSET', job, 'cause', cause)
  count(state)
  count(table.concat({'ended', get('kernel_type'), get('operation'), state, cause}, ':'))
  redis.call('PUBLISH', 'jobs:ended', id)
  -- The API delivers the webhook that the request asked for (`tasks/jobs/webhook_outbox.py`).
  if redis.call('EXISTS', job .. ':webhook') == 1 then
    redis.call('HSET', job, 'webhook', '{"state":"pending","attempts":0,"last_error":null}')
    schedule_webhook(id, text(now))
  end
end

-- Records an attempt that ended by a fault of the service, for the API, and so that another worker runs the next one.
-- `proven`: the evidence is more than text from a submission's process, which must not quarantine a worker.
local function record_fault(reason, proven)
  local worker, before = get('worker'), get('failed_attempts')
  local entry = '{"attempt":' .. get('attempt') .. ',"worker":' .. cjson.encode(worker) .. ',"stage":"' .. get('stage')
                .. '","at":' .. text(now) .. ',"reason":' .. cjson.encode(reason) .. '}'
  redis.call('HSET', job, 'failed_attempts', before == '' and entry or before .. ',' .. entry)
  if proven then redis.call('HINCRBY', 'workers:faults', worker, 1) end
end

-- One line for each attempt that the service failed.
local function reasons()
  local lines = {}
  for _, each in ipairs(failed_attempts()) do
    table.insert(lines, 'attempt ' .. each.attempt .. ' on ' .. each.worker .. ': ' .. each.reason)
  end
  return lines
end

local function fail(lines)
  redis.call('HSET', job, 'error', table.concat(lines, '\n'))
  finish('failed', 'infrastructure_error')
end

-- Whether no worker started a queued job within its queue timeout.
local function overdue()
  local deadline = redis.call('ZSCORE', 'jobs:deadlines', id)
  return deadline and get('state') == 'queued' and tonumber(deadline) <= now
end

local function expire()
  redis.call('HSET', job, 'error', 'not begun within its queue_timeout of ' .. get('queue_timeout')
             .. ' s; submit it again, with a longer one or at a quieter time')
  finish('cancelled', 'queue_timeout')
end
