"""Lua scripts of the shared build cache, each one atomic step; `tasks/builds/shared_cache.py` lists the keys."""

from __future__ import annotations

_REMOVE = """
local archives, shipped, expire, bytes = 'builds:archives', 'builds:shipped', 'builds:expire', 'builds:bytes'

local function now()
  local time = redis.call('TIME')
  return time[1] + time[2] / 1e6
end

-- Free memory first: if Redis is full, the first write of a script must not be one that may need memory.
local function forget(key)
  local size = redis.call('HSTRLEN', archives, key)
  redis.call('HDEL', archives, key)
  redis.call('ZREM', shipped, key)
  redis.call('ZREM', expire, key)
  if size > 0 then redis.call('DECRBY', bytes, size) end
end

local function forget_old()
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', expire, '-inf', now(), 'LIMIT', 0, 1000)) do forget(key) end
end
"""

# key, caller, seconds of its mark -> the archive or '', the maker: the caller if there is neither archive nor mark
# A caller that must wait leaves a note, so that the maker does not abandon the build.
RESERVE = (
    _REMOVE
    + """
forget_old()
local packed = redis.call('HGET', archives, ARGV[1])
if packed then return {packed, ''} end
local mark = 'builds:mark:' .. ARGV[1]
redis.call('SET', mark, ARGV[2], 'NX', 'EX', ARGV[3])
local maker = redis.call('GET', mark)
if maker ~= ARGV[2] then redis.call('SET', 'builds:awaited:' .. ARGV[1], '', 'NX', 'EX', ARGV[3]) end
return {'', maker}
"""
)

# keys -> those with neither an archive nor a mark
MISSING = """
local missing = {}
for _, key in ipairs(ARGV) do
  if redis.call('HEXISTS', 'builds:archives', key) == 0 and redis.call('EXISTS', 'builds:mark:' .. key) == 0 then
    table.insert(missing, key)
  end
end
return missing
"""

# key, maker, seconds
RENEW = """
local mark = 'builds:mark:' .. ARGV[1]
if redis.call('GET', mark) == ARGV[2] then redis.call('EXPIRE', mark, ARGV[3]) end
return 1
"""

# key, maker, text to store instead of the mark if there is no archive ('' for none), seconds to store it
RELEASE = """
local mark = 'builds:mark:' .. ARGV[1]
if redis.call('GET', mark) ~= ARGV[2] then return 0 end
if ARGV[3] == '' or redis.call('HEXISTS', 'builds:archives', ARGV[1]) == 1 then return redis.call('DEL', mark) end
redis.call('SET', mark, ARGV[3], 'EX', ARGV[4])
return 1
"""

# key, archive, seconds to store it, maximum bytes of all archives, seconds after which the whole cache expires
SHIP = (
    _REMOVE
    + """
redis.call('INCRBY', bytes, 0)  -- Fails if Redis is full, before anything has changed.
forget_old()
forget(ARGV[1])
redis.call('HSET', archives, ARGV[1], ARGV[2])
redis.call('ZADD', shipped, now(), ARGV[1])
redis.call('ZADD', expire, now() + ARGV[3], ARGV[1])
local total = redis.call('INCRBY', bytes, #ARGV[2])
while total > tonumber(ARGV[4]) do
  local oldest = redis.call('ZRANGE', shipped, 0, 0)[1]
  if not oldest then  -- One of the keys was removed without the others: start over.
    redis.call('DEL', archives, bytes)
    break
  end
  forget(oldest)
  total = tonumber(redis.call('GET', bytes))
end
for _, each in ipairs({archives, shipped, expire, bytes}) do redis.call('EXPIRE', each, ARGV[5]) end
return total
"""
)

# key
DROP = _REMOVE + "forget(ARGV[1])\nreturn 1\n"
