-- Ends a queued job whose queue timeout has passed.
-- Argument: id; ttl, seconds to keep a job that has ended.
-- Reply: 1 if the job ended, else 0.
if not overdue() then return 0 end
expire()
return 1
