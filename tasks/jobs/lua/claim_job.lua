-- Starts the first job of the queues that a worker serves.
-- Argument:
--   worker, gpu              the worker and its GPU model
--   message, queue           the message that it received, if any, and the message's queue
--   owner_ttl                seconds until the owner counts as gone
--   long_wait                seconds after which a job has waited long
--   long_wait_every          one of how many started jobs is such a job
--   tries                    maximum number of jobs to look at
-- Reply: {id, attempt, request, the queue that needs a message now or '', the API key or '', keep or ''}; false if there is no job to start.

if arg.message and redis.call('HEXISTS', 'jobs:messages', arg.message) == 1 then return false end
local lines = {common, common .. '.gpu.' .. arg.gpu, common .. '.' .. arg.worker}
local line
for _ = 1, arg.tries do
  local place
  place, line = first_of(lines, arg.long_wait, arg.long_wait_every)
  if not place then return false end
  select_job(id_of(place))
  if get('state') ~= 'queued' or get('place') ~= place then
    drop(line, place)
    line = nil
  elseif overdue() then
    expire()
    line = nil
  else
    break
  end
end
-- All tries met jobs that could not start. The reconciler notices the missing message.
if not line then return false end
local attempt = get('attempt') + 1
leave()
advance_virtual_time()
redis.call('HSET', job, 'attempt', attempt, 'worker', arg.worker, 'message', arg.message or '')
if arg.message then redis.call('HSET', 'jobs:messages', arg.message, id .. ' ' .. attempt) end
redis.call('ZREM', 'jobs:deadlines', id)
redis.call('SET', job .. ':owner', attempt, 'EX', arg.owner_ttl)
note('build', now, attempt)
move('building', 'build', now)
local lacking = ''
if arg.queue ~= line and redis.call('ZCARD', line_key(arg.queue)) > redis.call('LLEN', arg.queue) then
  lacking = arg.queue
end
return {id, attempt, redis.call('GET', job .. ':request'), lacking, get('key_id'), get('keep')}
