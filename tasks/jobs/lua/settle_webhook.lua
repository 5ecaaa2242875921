-- Records the outcome of a try to deliver a webhook.
-- Argument: id; delivery, its state as JSON; pause, seconds until the next try, absent after the last one.
local job = 'job:' .. arg.id
if redis.call('EXISTS', job) == 1 then
  redis.call('HSET', job, 'webhook', arg.delivery)
  redis.call('PUBLISH', 'jobs:changed', arg.id)
end
if arg.pause then schedule_webhook(arg.id, text(now + arg.pause)) else remove_webhook(arg.id) end
