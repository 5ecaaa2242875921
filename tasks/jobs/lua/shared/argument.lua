-- The script's argument, and Redis' clock. Goes before every script but those of one key.
--
-- ARGV[1] is a JSON object; the header of each script lists its fields. An absent field is nil. Large texts follow as
-- ARGV[2] and later: to encode them as JSON would take longer than the rest of the script. Numbers are doubles, which
-- are exact for counts and for microseconds since 1970; `text` writes times, because `..` keeps only 14 digits.

local arg = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000

local function text(at) return string.format('%.6f', at) end
