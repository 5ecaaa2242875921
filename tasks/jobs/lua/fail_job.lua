-- Ends a job by a fault of the service.
-- Argument: id, attempt, error.
-- Reply: 1, or 0 if the attempt does not own the job.
if not owns_job() then return 0 end
local lines = reasons()
table.insert(lines, arg.error)
record_fault(arg.error, true)
fail(lines)
return 1
