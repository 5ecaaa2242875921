-- Deletes jobs that finished long ago, and what is left of jobs whose record is gone: evicted, or deleted by hand.
-- Argument: finished_before, epoch seconds as text; limit, maximum number of jobs.
-- Reply: the number of deleted jobs.

-- Without the record neither the state nor the API key is known. Of all jobs at once, as there may be thousands of keys.
local function forget_indexes(ids)
  if not ids[1] then return end  -- `ZREM` takes one at least.
  for state in pairs(states) do
    redis.call('ZREM', 'jobs:state:' .. state, unpack(ids))
  end
  for _, key in ipairs(redis.call('HKEYS', 'jobs:bytes:of_key')) do
    redis.call('SREM', 'jobs:open:' .. key, unpack(ids))
    redis.call('ZREM', 'jobs:key:' .. key, unpack(ids))
  end
  redis.call('ZREM', 'jobs:deadlines', unpack(ids))
end

local gone, old = {}, redis.call('ZRANGEBYSCORE', 'jobs:finished', '-inf', '(' .. arg.finished_before, 'LIMIT', 0, arg.limit)
for _, each in ipairs(old) do
  if redis.call('EXISTS', 'job:' .. each) == 0 then table.insert(gone, each) end
end
for state, means in pairs(states) do
  for _, each in ipairs(means == 'ended' and {} or part('jobs:state:' .. state, arg.limit)) do
    if redis.call('EXISTS', 'job:' .. each) == 0 then
      table.insert(gone, each)
      table.insert(old, each)
    end
  end
end
forget_indexes(gone)
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
  count('submitted_ms', -math.floor((redis.call('ZSCORE', 'jobs:all', id) or 0) * 1000))
  for _, index in ipairs({'jobs:all', 'jobs:finished', 'jobs:state:' .. get('state')}) do
    redis.call('ZREM', index, id)
  end
  redis.call('DEL', job, job .. ':request', job .. ':result', job .. ':artifacts', job .. ':webhook')
end
return #old
