-- Ends a running job as cancelled.
-- Argument: id, attempt.
-- Reply: 1, or 0 if the attempt does not own the job.
if not owns_job() then return 0 end
finish('cancelled', 'requested')
return 1
