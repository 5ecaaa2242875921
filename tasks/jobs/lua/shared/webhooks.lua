-- Due webhooks. `tasks/jobs/webhook_outbox.py` describes the keys.

-- Sorts a group by its first job; a group without jobs is removed.
local function sort_group(group)
  local first = redis.call('ZRANGE', 'webhooks:due:' .. group, 0, 0, 'WITHSCORES')
  if first[1] then redis.call('ZADD', 'webhooks:due', first[2], group) else redis.call('ZREM', 'webhooks:due', group) end
end

local function schedule_webhook(each, at)
  local group = redis.call('HGET', 'webhooks:group_of', each)
  if not group then
    local hook = redis.call('GET', 'job:' .. each .. ':webhook') or ''
    local key = redis.call('HGET', 'job:' .. each, 'key_id')
    group = key and 'key:' .. key or 'host:' .. (hook:match('"url": "%a+://([^/?#"]*)') or '')
    redis.call('HSET', 'webhooks:group_of', each, group)
  end
  redis.call('ZADD', 'webhooks:due:' .. group, at, each)
  sort_group(group)
end

local function remove_webhook(each)
  local group = redis.call('HGET', 'webhooks:group_of', each)
  if group then
    redis.call('ZREM', 'webhooks:due:' .. group, each)
    redis.call('HDEL', 'webhooks:group_of', each)
    sort_group(group)
  end
  redis.call('DEL', 'job:' .. each .. ':webhook')
end
