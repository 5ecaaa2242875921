-- Cancels a queued job, or asks the worker of a running one to do so.
-- Argument: id.
-- Reply: 1 if the job was open, else 0.
if get('state') == 'queued' then
  finish('cancelled', 'requested')
  return 1
end
if not active() then return 0 end
if get('cancel_requested') == '' then
  redis.call('HSET', job, 'cancel_requested', text(now))
  redis.call('PUBLISH', 'jobs:changed', id)
end
return 1
