-- Deletes jobs that finished long ago.
-- Argument: finished_before, epoch seconds as text; limit, maximum number of jobs.
-- Reply: the number of deleted jobs.

local function release_bytes(each)
  local size = tonumber(redis.call('HGET', 'jobs:bytes', each) or '0')
  redis.call('DECRBY', 'jobs:bytes:kept', size)
  redis.call('HDEL', 'jobs:bytes', each)
  charge(redis.call('HGET', 'jobs:key_of', each), -size)
end

local old = redis.call('ZRANGEBYSCORE', 'jobs:finished', '-inf', '(' .. arg.finished_before, 'LIMIT', 0, arg.limit)
for _, each in ipairs(old) do
  local record = 'job:' .. each
  local batch = redis.call('HGET', record, 'batch_id')
  if batch then
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
