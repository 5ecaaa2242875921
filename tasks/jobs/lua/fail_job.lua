-- Ends a job whose request cannot be read.
-- Argument: id, attempt, error.
-- Reply: 1, or 0 if the attempt does not own the job.
if not owns_job() then return 0 end
local lines = reasons()
table.insert(lines, arg.error)
record_fault(arg.error, false)  -- The record is at fault, not the worker.
fail(lines)
return 1
