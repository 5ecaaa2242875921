-- Stores a shared build, and evicts the oldest ones until all fit. tasks/builds/shared_cache.py lists the keys.
-- Argument: key of the build; limit, maximum bytes of all archives; ttl, seconds until expiry.
-- ARGV[2]: the archive; an empty one removes the build.
-- Reply: the bytes of all archives, or 0 for a removal.
local archive = ARGV[2]
local archives, stored, bytes = 'builds:archives', 'builds:stored', 'builds:bytes'

local function forget(one)
  local size = redis.call('HSTRLEN', archives, one)
  redis.call('HDEL', archives, one)
  redis.call('ZREM', stored, one)
  if size > 0 then redis.call('DECRBY', bytes, size) end
end

if archive == '' then
  forget(arg.key)
  return 0
end
redis.call('INCRBY', bytes, 0)  -- Fails if Redis is full, before anything has changed.
forget(arg.key)
redis.call('HSET', archives, arg.key, archive)
redis.call('ZADD', stored, text(now), arg.key)
local total = redis.call('INCRBY', bytes, #archive)
while total > arg.limit do
  local oldest = redis.call('ZRANGE', stored, 0, 0)[1]
  if not oldest then  -- One of the keys was removed without the others: start over.
    redis.call('DEL', archives, bytes)
    break
  end
  forget(oldest)
  total = tonumber(redis.call('GET', bytes))
end
for _, each in ipairs({archives, stored, bytes}) do redis.call('EXPIRE', each, arg.ttl) end
return total
