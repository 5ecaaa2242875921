-- Argument: {}.
-- Reply: for each queue that has jobs {its name, its number of jobs, the number of messages in its Celery queue}.
local found = {}
for _, line in ipairs(redis.call('SMEMBERS', 'jobs:lines')) do
  local jobs = redis.call('ZCARD', line_key(line))
  if jobs == 0 then
    redis.call('SREM', 'jobs:lines', line)
  else
    table.insert(found, {line, jobs, redis.call('LLEN', line)})
  end
end
return found
