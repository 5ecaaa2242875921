-- The script's argument, and Redis' clock: the first of the shared files.
--
-- ARGV[1] is a JSON object; the header of each script lists its fields. An absent field is nil. Large texts follow as
-- ARGV[2] and later, because to encode and decode them as JSON takes 0.6 ms for 64 KiB; artifacts are no text at all.
-- Numbers are doubles, exact for counts and for microseconds since 1970. `text` writes times, because `..` keeps only
-- 14 digits.

local arg = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000

local function text(at) return string.format('%.6f', at) end
