-- Deletes jobs that finished long ago.
-- Argument: finished_before, epoch seconds as text; limit, maximum number of jobs.
-- Reply: the number of deleted jobs.
local old = redis.call('ZRANGEBYSCORE', 'jobs:finished', '-inf', '(' .. arg.finished_before, 'LIMIT', 0, arg.limit)
for _, each in ipairs(old) do
  select_job(each)
  local batch, key = 'batch:' .. get('batch_id'), get('key_id')
  redis.call('ZREM', batch, id)
  if redis.call('EXISTS', batch) == 0 then redis.call('DEL', batch .. ':bodies') end
  set_bytes(0)
  if key ~= '' then redis.call('ZREM', 'jobs:key:' .. key, id) end
  local name = get('name')
  for _, viewer in ipairs(viewers(key)) do
    local attempts = 'jobs:name:' .. viewer .. ':' .. name
    redis.call('ZREM', attempts, id)
    if redis.call('EXISTS', attempts) == 0 then redis.call('ZREM', 'jobs:names:' .. viewer, name) end
  end
  count('submitted_ms', -math.floor(get('submitted_at') * 1000))
  for _, index in ipairs({'jobs:all', 'jobs:finished', 'jobs:state:' .. get('state')}) do
    redis.call('ZREM', index, id)
  end
  redis.call('DEL', job, job .. ':request', job .. ':result', job .. ':artifacts', job .. ':webhook')
end
return #old
