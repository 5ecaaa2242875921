-- The record of a job, its result, and its rank among queued jobs, each false if absent; false for an unknown job.
local function read_job(id)
  local job = 'job:' .. id
  local stored = redis.call('HGETALL', job)
  if #stored == 0 then return false end
  local place = redis.call('HGET', job, 'place') or ''
  return {stored, redis.call('GET', job .. ':result'), redis.call('ZRANK', 'jobs:queue', place)}
end
