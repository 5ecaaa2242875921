-- Moves a queued job to the queue that suits it now.
-- Argument: id.
-- Reply: that queue; false if the job is not queued.
if get('state') ~= 'queued' then return false end
leave()
enter(choose_line())
return get('line')
