-- Finds queued jobs that are in no queue and should enter one: those whose pause is over, and those whose place was lost.
-- One that paused before its last attempt enters while no other such job is under way: jobs that failed together may
-- have failed by one of them, which ended their worker.
-- Argument: limit, maximum number of jobs to look at; alone, seconds after which a job no longer holds up the others.
-- Reply: their ids.
local found, last = {}, redis.call('GET', 'jobs:last_attempt')
local busy = last and redis.call('EXISTS', 'job:' .. last) == 1 and not redis.call('ZSCORE', 'jobs:finished', last)
for _, each in ipairs(redis.call('ZRANGE', 'jobs:state:queued', 0, arg.limit - 1)) do
  select_job(each)
  local place, not_before = get('place'), tonumber(get('not_before'))
  if place ~= '' and not redis.call('ZSCORE', line_key(get('line')), place) then
    if not not_before then
      table.insert(found, id)
    elseif not_before <= now and not busy then
      busy = true
      redis.call('SET', 'jobs:last_attempt', id, 'EX', arg.alone)
      table.insert(found, id)
    end
  end
end
return found
