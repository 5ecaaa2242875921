-- Moves a job to a stage.
-- Argument: id, attempt; state, stage; ago, seconds since the stage began; interim_correct, the interim verdict, if any.
-- Reply: 1, or 0 if the attempt does not own the job.
if not owns_job() then return 0 end
if arg.interim_correct ~= nil then
  redis.call('HSET', job, 'right', arg.interim_correct and '1' or '0')
  redis.call('PUBLISH', 'jobs:changed', id)
end
if get('stage') ~= arg.stage then
  local at = math.max(now - arg.ago, tonumber(get('since')))
  note(arg.stage, at, arg.attempt)
  move(arg.state, arg.stage, at)
end
return 1
