-- Stores a shared build, and evicts the oldest ones until all fit. tasks/builds/shared_cache.py lists the keys.
-- Arguments: the build's key, its archive ('' removes the build), maximum bytes of all archives, seconds until expiry.
local key, archive, limit, ttl_s = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local archives, stored, bytes = 'builds:archives', 'builds:stored', 'builds:bytes'

local function forget(one)
  local size = redis.call('HSTRLEN', archives, one)
  redis.call('HDEL', archives, one)
  redis.call('ZREM', stored, one)
  if size > 0 then redis.call('DECRBY', bytes, size) end
end

if archive == '' then
  forget(key)
  return 0
end
redis.call('INCRBY', bytes, 0)  -- Fails if Redis is full, before anything has changed.
forget(key)
redis.call('HSET', archives, key, archive)
local now = redis.call('TIME')
redis.call('ZADD', stored, now[1] + now[2] / 1e6, key)
local total = redis.call('INCRBY', bytes, #archive)
while total > limit do
  local oldest = redis.call('ZRANGE', stored, 0, 0)[1]
  if not oldest then  -- One of the keys was removed without the others: start over.
    redis.call('DEL', archives, bytes)
    break
  end
  forget(oldest)
  total = tonumber(redis.call('GET', bytes))
end
for _, each in ipairs({archives, stored, bytes}) do redis.call('EXPIRE', each, ttl_s) end
return total
