"""What moves jobs in and out of lines, as Lua, each one atomic step; `tasks/jobs/queue_lua_lib.py` has the keys."""

from __future__ import annotations

from tasks.jobs.job_lua_lib import FUNCTIONS

# '', worker, its GPU's model, message id or '', the queue that it came from, seconds until the owner counts as gone,
# ttl, seconds after which a job has waited long, every how many jobs one of those is taken, tries
# -> job id, attempt, request, the queue that lacks a message now or ''; false where there is nothing to begin
CLAIM = (
    FUNCTIONS
    + """
local worker, message, queue = ARGV[2], ARGV[4], ARGV[5]
if message ~= '' and redis.call('HEXISTS', 'jobs:messages', message) == 1 then return false end
local lines = {common, common .. '.gpu.' .. ARGV[3], common .. '.' .. worker}
local line
for _ = 1, tonumber(ARGV[10]) do
  local place
  place, line = first_of(lines, tonumber(ARGV[8]), tonumber(ARGV[9]))
  if not place then return false end
  id = id_of(place)
  job = 'job:' .. id
  if get('state') ~= 'queued' or get('place') ~= place then
    drop(line, place)
    line = nil
  elseif overdue() then
    expire(ARGV[7])
    line = nil
  else
    break
  end
end
-- The reconciler notices that a message is missing then.
if not line then return false end
local attempt = get('attempt') + 1
leave()
follow()
redis.call('HSET', job, 'attempt', attempt, 'worker', worker, 'message', message)
if message ~= '' then redis.call('HSET', 'jobs:messages', message, id .. ' ' .. attempt) end
redis.call('ZREM', 'jobs:deadlines', id)
redis.call('SET', job .. ':owner', attempt, 'EX', ARGV[6])
note('build', now, attempt)
move('building', 'build', now)
local lacking = ''
if queue ~= line and redis.call('ZCARD', line_key(queue)) > redis.call('LLEN', queue) then lacking = queue end
return {id, attempt, redis.call('GET', job .. ':request'), lacking}
"""
)

# id: to the line that it should stand in now -> that line; false where it is not queued
MOVE = (
    FUNCTIONS
    + """
if get('state') ~= 'queued' then return false end
leave()
enter(line_of_choice())
return get('line')
"""
)

# '' -> for each line that has jobs: its name, how many, how many messages its queue has
COUNT = (
    FUNCTIONS
    + """
local found = {}
for _, line in ipairs(redis.call('SMEMBERS', 'jobs:lines')) do
  local jobs = redis.call('ZCARD', line_key(line))
  if jobs == 0 then
    redis.call('SREM', 'jobs:lines', line)
  else
    table.insert(found, {line, jobs, redis.call('LLEN', line)})
  end
end
return found
"""
)

# '': the shares that are spent have nothing more to say
FORGET_SHARES = (
    FUNCTIONS
    + """
for share, ends in pairs(hash('jobs:shares')) do
  if tonumber(ends) <= reached(string.match(share, '^%d+')) then redis.call('HDEL', 'jobs:shares', share) end
end
"""
)
