-- Finds queued jobs whose place in a queue was lost.
-- Argument: limit, maximum number of jobs to look at.
-- Reply: their ids.
local found = {}
for _, each in ipairs(part('jobs:state:queued', arg.limit)) do
  select_job(each)
  local place = get('place')
  if place ~= '' and not redis.call('ZSCORE', line_key(get('line')), place)
      and not redis.call('ZSCORE', 'jobs:paused', id) then
    table.insert(found, id)
  end
end
return found
