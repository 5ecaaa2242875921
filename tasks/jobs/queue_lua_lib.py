"""Where queued jobs stand: their order, as Lua functions among those of `tasks/jobs/job_lua_lib.py`.

A job stands in one line: `evaluate` for whoever takes jobs, `evaluate.gpu.<model>` for those with that GPU, or
`evaluate.<worker>` for that worker alone, after another has failed it. A line is named as the Celery queue whose
messages say that something is in it. Its place there is a text that sorts: priority, share, expected time, arrival.
It is given once and kept, also through another attempt. docs/adr/0021 has the reasons.

Keys: `jobs:queue` has the places of all queued jobs, `jobs:line:<line>` those of one line (sorted sets whose scores are
all 0), `jobs:line:<line>:age` the same by time of submission; `jobs:lines` the lines that may have jobs. `jobs:shares`
has for each priority and API key the virtual time at which what it has handed in so far ends, `jobs:virtual` for each
priority the time that is reached. `jobs:expected` has what each kind of job takes on average, `jobs:took:<work>` what
that very work took last, in seconds. `jobs:messages` says which attempt runs under which message,
`jobs:answer:<key>:<work>` which job has answered that work.
"""

from __future__ import annotations

COMMON = "evaluate"

FUNCTIONS = """
local common, highest, slice_s, first_guess_s = 'evaluate', 9, 30, 5
local id_begins = 41

local function hash(key)
  local found, flat = {}, redis.call('HGETALL', key)
  for place = 1, #flat, 2 do found[flat[place]] = flat[place + 1] end
  return found
end

local function line_key(line) return 'jobs:line:' .. line end
local function flow() return get('priority') .. ':' .. get('key_id') end
local function reached(priority) return tonumber(redis.call('HGET', 'jobs:virtual', priority) or '0') end
local function id_of(place) return string.sub(place, id_begins) end

-- Start-time fair queueing: a key's next job starts, in virtual time, where its jobs before end, and not before the
-- time that is reached. Within a slice of that time what is short goes first.
local function take_place(priority, seconds, at)
  local start = math.max(reached(priority), tonumber(redis.call('HGET', 'jobs:shares', flow()) or '0'))
  redis.call('HSET', 'jobs:shares', flow(), text(start + seconds))
  local place = string.format('%d:%010.0f:%08.0f:%017.6f:%s', highest - priority, math.floor(start / slice_s),
                              math.min(math.floor(seconds * 1000), 99999999), at, id)
  redis.call('HSET', job, 'place', place, 'start', text(start), 'expected', text(seconds))
end

local function enter(line)
  local place = get('place')
  redis.call('HSET', job, 'line', line)
  redis.call('SADD', 'jobs:lines', line)
  redis.call('ZADD', 'jobs:queue', 0, place)
  redis.call('ZADD', line_key(line), 0, place)
  redis.call('ZADD', line_key(line) .. ':age', get('submitted_at'), place)
end

local function drop(line, place)
  redis.call('ZREM', 'jobs:queue', place)
  redis.call('ZREM', line_key(line), place)
  redis.call('ZREM', line_key(line) .. ':age', place)
end

local function leave() drop(get('line'), get('place')) end

-- The time that is reached follows the jobs that begin, but not past what waits in the line that everybody serves: a
-- key with much in the line of one GPU would else set all newcomers back.
local function follow()
  local priority, start = get('priority'), tonumber(get('start'))
  local class = (highest - priority) .. ':'
  local head = redis.call('ZRANGEBYLEX', line_key(common), '[' .. class, '(' .. class .. ':', 'LIMIT', 0, 1)[1]
  if head then start = math.min(start, tonumber(redis.call('HGET', 'job:' .. id_of(head), 'start') or start)) end
  if start > reached(priority) then redis.call('HSET', 'jobs:virtual', priority, text(start)) end
end

local function expected(kind, work)
  return tonumber(redis.call('GET', 'jobs:took:' .. work) or redis.call('HGET', 'jobs:expected', kind)
                  or first_guess_s)
end

local function learn(seconds, ttl)
  local before = tonumber(redis.call('HGET', 'jobs:expected', get('kind')) or seconds)
  redis.call('HSET', 'jobs:expected', get('kind'), text(0.8 * before + 0.2 * seconds))
  redis.call('SET', 'jobs:took:' .. get('work'), text(seconds), 'EX', ttl)
end

-- A share is of what jobs took, not of what they were expected to take; attempts that we failed cost nothing more.
local function settle(seconds)
  if get('failed_attempts') ~= '' or redis.call('HEXISTS', 'jobs:shares', flow()) == 0 then return end
  redis.call('HINCRBYFLOAT', 'jobs:shares', flow(), text(seconds - get('expected')))
end

local function tried(worker) return string.find(get('tried'), '\\n' .. worker .. '\\n', 1, true) ~= nil end

local function takes_jobs(worker)
  return redis.call('EXISTS', 'worker:' .. worker) == 1 and redis.call('HEXISTS', 'workers:quarantined', worker) == 0
end

local function has_gpu(worker, gpu) return gpu == '' or redis.call('HGET', 'workers:gpu', worker) == gpu end

local function somebody_has(gpu)
  for worker, model in pairs(hash('workers:gpu')) do
    if model == gpu and redis.call('EXISTS', 'worker:' .. worker) == 1 then return true end
  end
  return false
end

local function answer_key(key, work) return 'jobs:answer:' .. key .. ':' .. work end

-- Where the answer to a work is found as long as it is kept, by which key and on what kind of worker.
local function keep_answer(ttl)
  local setup = redis.call('HGET', 'workers:setup', get('worker'))
  if not setup then return end
  redis.call('SET', answer_key(get('key_id'), get('work')), cjson.encode({id, text(now), setup}), 'EX', ttl)
end

-- The job that has answered the same for the same key, when, and what; nil unless a worker lives that would answer
-- alike, on the GPU that is asked for.
local function answered(key, work, gpu)
  local kept = redis.call('GET', answer_key(key, work))
  if not kept then return nil end
  local earlier, at, setup = unpack(cjson.decode(kept))
  for worker, its in pairs(hash('workers:setup')) do
    if its == setup and has_gpu(worker, gpu) and redis.call('EXISTS', 'worker:' .. worker) == 1 then
      local result = redis.call('GET', 'job:' .. earlier .. ':result')
      if result then return earlier, at, result end
    end
  end
end

-- The line to stand in: that of the worker with the shortest one, of those that take jobs and have not failed this job
-- while others have; the common one, or its GPU's, where nobody has failed it or everybody has.
local function line_of_choice()
  local gpu = get('gpu')
  local best, fewest = gpu == '' and common or common .. '.gpu.' .. gpu, math.huge
  if get('tried') == '' then return best end
  for _, worker in ipairs(redis.call('SMEMBERS', 'workers')) do
    if not tried(worker) and has_gpu(worker, gpu) and takes_jobs(worker) then
      local own = common .. '.' .. worker
      local length = redis.call('ZCARD', line_key(own))
      if length < fewest then best, fewest = own, length end
    end
  end
  return best
end

-- The first of these lines, or, every so many times, who has waited longest, and for longer than the bound.
local function first_of(lines, bound_s, every)
  local best, from, oldest, since, where = nil, nil, nil, now - bound_s, nil
  for _, line in ipairs(lines) do
    local head = redis.call('ZRANGE', line_key(line), 0, 0)[1]
    if head and (not best or head < best) then best, from = head, line end
    local aged = redis.call('ZRANGE', line_key(line) .. ':age', 0, 0, 'WITHSCORES')
    if aged[1] and tonumber(aged[2]) < since then oldest, since, where = aged[1], tonumber(aged[2]), line end
  end
  if oldest and redis.call('INCR', 'jobs:turn') % every == 0 then return oldest, where end
  return best, from
end
"""
