-- Reserves the next due webhook for the caller.
-- Argument: busy, the groups to leave out; reserved, seconds until another caller may take it.
-- Reply: {job id, webhook or '' if it is not kept, delivery state, group}; false if none is due.

local busy = {}
for _, group in ipairs(arg.busy) do busy[group] = true end

local function first_due()
  -- At most #arg.busy groups can be busy, so one more is enough to meet one that is not.
  local groups = redis.call('ZRANGEBYSCORE', 'webhooks:due', '-inf', text(now), 'LIMIT', 0, #arg.busy + 1)
  for _, group in ipairs(groups) do
    if not busy[group] then return redis.call('ZRANGE', 'webhooks:due:' .. group, 0, 0)[1], group end
  end
end

local due, group = first_due()
if not due then return false end
local hook = redis.call('GET', 'job:' .. due .. ':webhook')
if not hook or redis.call('EXISTS', 'job:' .. due) == 0 then
  remove_webhook(due)
  return {due, ''}
end
schedule_webhook(due, text(now + arg.reserved))
return {due, hook, redis.call('HGET', 'job:' .. due, 'webhook'), group}
