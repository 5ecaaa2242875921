"""Lua scripts that move jobs into and out of queues, each one atomic step; `queue_lua_lib.py` lists the keys."""

from __future__ import annotations

from tasks.jobs.job_script_functions import FUNCTIONS

# Arguments: '', worker, its GPU model, message id or '', the message's queue, seconds until the owner counts as dead,
# ttl, seconds after which a job has waited long, one of how many started jobs is such a job, tries
# -> job id, attempt, request, the queue that needs a message now or ''; false if there is no job to start
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
-- All tries met jobs that could not start. The reconciler notices the missing message.
if not line then return false end
local attempt = get('attempt') + 1
leave()
advance_virtual_time()
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

# id: move the job to the queue that suits it now -> that queue; false if the job is not queued
MOVE = (
    FUNCTIONS
    + """
if get('state') ~= 'queued' then return false end
leave()
enter(choose_line())
return get('line')
"""
)

# '' -> for each queue that has jobs: its name, its number of jobs, the number of messages in its Celery queue
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

# '': remove the shares that ended before the current virtual time, as they no longer delay anyone
DROP_SHARES = (
    FUNCTIONS
    + """
for share, ends in pairs(hash('jobs:shares')) do
  if tonumber(ends) <= reached(string.match(share, '^%d+')) then redis.call('HDEL', 'jobs:shares', share) end
end
"""
)
