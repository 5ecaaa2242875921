-- Finds queued jobs that are in no queue and should enter one: those whose place was lost, and those whose pause is over.
-- Of the latter one enters at a time, when the one before has ended: jobs that failed together may have failed by one of
-- them, which ended their worker. One whose GPU no worker has pauses on: in a queue it would hold up the others.
-- Argument: limit, maximum number of jobs of each kind to look at; alone, seconds after which a job no longer holds up
-- the others.
-- Reply: their ids.
local found = {}

local function has_worker()
  local gpu = get('gpu')
  for worker, model in pairs(hash('workers:gpu')) do
    if model == gpu and takes_jobs(worker) then return true end
  end
  return gpu == ''
end

for _, each in ipairs(part('jobs:state:queued', arg.limit)) do
  select_job(each)
  local place = get('place')
  if place ~= '' and not redis.call('ZSCORE', line_key(get('line')), place)
      and not redis.call('ZSCORE', 'jobs:paused', id) then
    table.insert(found, id)
  end
end
local last = redis.call('GET', 'jobs:last_attempt')
local busy = last and redis.call('EXISTS', 'job:' .. last) == 1 and not redis.call('ZSCORE', 'jobs:finished', last)
for _, each in ipairs(redis.call('ZRANGEBYSCORE', 'jobs:paused', '-inf', text(now), 'LIMIT', 0, arg.limit)) do
  select_job(each)
  local queued = get('state') == 'queued'
  local enters = queued and not busy and has_worker()
  if enters or not queued then redis.call('ZREM', 'jobs:paused', id) end
  if enters then
    busy = true
    redis.call('SET', 'jobs:last_attempt', id, 'EX', arg.alone)
    table.insert(found, id)
  end
end
return found
