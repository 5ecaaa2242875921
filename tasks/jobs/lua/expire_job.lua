-- Ends a queued job whose queue timeout has passed.
-- Argument: id.
-- Reply: 1 if the job ended, else 0.
if not overdue() then return 0 end
expire()
return 1
