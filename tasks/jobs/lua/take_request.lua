-- Counts a request of an API key. A token bucket is stored as one number, the time at which it is full again (GCRA).
-- KEYS[1]: the bucket, which expires.
-- Argument: each, microseconds for each request.
-- Reply: 0 if the request is admitted, else the microseconds until the next one will be.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- An empty bucket is full after a minute; a later time is from before the clock was set back.
local stored = math.min(tonumber(redis.call('GET', KEYS[1]) or '0'), now + 60000000)
local full = math.max(now, stored) + cjson.decode(ARGV[1]).each
local early = full - now - 60000000
if early > 0 then return math.ceil(early) end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', 60000)
return 0
