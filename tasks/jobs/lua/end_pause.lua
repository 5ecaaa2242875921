-- Lets one job whose pause is over enter a queue for its last attempt, when the one before has ended: jobs that failed
-- together may have failed by one of them, which ended their worker. One whose GPU no worker has pauses on: in a queue it
-- would hold up the others.
-- Argument: limit, maximum number of jobs to look at; alone, seconds after which a job no longer holds up the others.
-- Reply: {id, its queue}; false if none enters.
local last = redis.call('GET', 'jobs:last_attempt')
if last and redis.call('EXISTS', 'job:' .. last) == 1 and not redis.call('ZSCORE', 'jobs:finished', last) then return false end

local function has_worker()
  local gpu = get('gpu')
  for worker, model in pairs(hash('workers:gpu')) do
    if model == gpu and takes_jobs(worker) then return true end
  end
  return gpu == ''
end

for _, each in ipairs(part('jobs:paused', arg.limit)) do
  if tonumber(redis.call('ZSCORE', 'jobs:paused', each)) > now then break end
  select_job(each)
  local queued = get('state') == 'queued'
  local enters = queued and has_worker()
  if enters or not queued then redis.call('ZREM', 'jobs:paused', id) end
  if enters then
    redis.call('SET', 'jobs:last_attempt', id, 'EX', arg.alone)
    enter(choose_line())
    return {id, get('line')}
  end
end
return false
