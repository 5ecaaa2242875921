-- Queues a job again after a fault of the service; ends it if it was cancelled, or after its last attempt.
-- Argument: id, attempt, reason, max_attempts; proven, whether the fault counts against the worker; pause, seconds before
-- the last attempt, unless a fresh worker takes it: a full disk would use up all attempts at once.
-- Reply: the queue that the job is in now; 0 if it ended or pauses (`end_pause.lua`), or the attempt does not own it.
if not owns_job() then return 0 end
record_fault(arg.reason, arg.proven)
if get('cancel_requested') ~= '' then
  finish('cancelled', 'requested')
  return 0
end
local lines = reasons()
if arg.attempt >= arg.max_attempts then
  fail(lines)
  return 0
end
redis.call('DEL', job .. ':owner')
redis.call('HDEL', job, 'right')
release()
note('queued', now, arg.attempt + 1, lines[#lines])
move('queued', 'queued', now)
count('requeued')
local line, is_fresh = choose_line()
if not is_fresh and arg.attempt + 1 == arg.max_attempts and arg.pause > 0 then
  redis.call('ZADD', 'jobs:paused', text(now + arg.pause), id)
  return 0
end
enter(line)
return line
