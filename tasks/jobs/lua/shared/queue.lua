-- The order of the queued jobs.
--
-- A job is in one queue (a `line` in this code): `evaluate` for any worker, `evaluate.gpu.<model>` for workers with that
-- GPU, or `evaluate.<worker>` for that worker alone, after another worker has failed it. A Celery queue of the same name
-- holds the messages that announce its jobs. A job's key in its queue (its `place`) is a text that sorts by priority,
-- share, expected time and arrival. It is assigned once and also kept for later attempts. docs/adr/0005 has the reasons.
--
-- Keys:
-- - `jobs:queue`: the places of all queued jobs. `jobs:line:<line>`: those of one queue (sorted sets of score 0).
--   `jobs:line:<line>:age`: the same by time of submission. `jobs:lines`: the queues that may have jobs.
-- - `jobs:paused`: queued jobs in no queue, by the time at which they may enter one for their last attempt.
--   `jobs:last_attempt`: the one that entered last (`end_pause.lua`).
-- - `jobs:shares`: per priority and API key, the virtual time at which its submitted jobs end. `jobs:virtual`: the time
--   that each priority has reached.
-- - `jobs:expected`: the average seconds of each kind of job. `jobs:took:<work>`: the seconds of the last job with that
--   exact work.
-- - `jobs:messages`: the attempt that runs under each message. `jobs:turn`: counts the claims that met a long wait.
-- - `jobs:answer:<key>:<work>`: the job whose result may be reused for that work.

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

-- Start-time fair queueing: a key's next job starts, in virtual time, where the key's previous jobs end, but not before
-- the current virtual time. Within a slice of virtual time, short jobs go first.
local function assign_place(priority, seconds, at)
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

-- Virtual time follows the jobs that start, up to the first job in the common queue. A key with many jobs for one GPU
-- would otherwise delay all newcomers.
local function advance_virtual_time()
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

local function update_expected(seconds, ttl)
  local before = tonumber(redis.call('HGET', 'jobs:expected', get('kind')) or seconds)
  redis.call('HSET', 'jobs:expected', get('kind'), text(0.8 * before + 0.2 * seconds))
  redis.call('SET', 'jobs:took:' .. get('work'), text(seconds), 'EX', ttl)
end

-- A share pays for the time that jobs took, not for the expected time. Attempts that the service failed cost nothing.
local function charge_share(seconds)
  if get('failed_attempts') ~= '' or redis.call('HEXISTS', 'jobs:shares', flow()) == 0 then return end
  redis.call('HINCRBYFLOAT', 'jobs:shares', flow(), text(seconds - get('expected')))
end

local function takes_jobs(worker)
  return redis.call('EXISTS', 'worker:' .. worker) == 1 and redis.call('HEXISTS', 'workers:quarantined', worker) == 0
end

local function has_gpu(worker, gpu) return gpu == '' or redis.call('HGET', 'workers:gpu', worker) == gpu end

local function has_live_worker(gpu)
  for worker, model in pairs(hash('workers:gpu')) do
    if model == gpu and redis.call('EXISTS', 'worker:' .. worker) == 1 then return true end
  end
  return false
end

local function answer_key(key, work) return 'jobs:answer:' .. key .. ':' .. work end

-- Registers this job's result for reuse while it is stored, under its API key and the worker's setup.
local function register_for_reuse(ttl)
  local setup = redis.call('HGET', 'workers:setup', get('worker'))
  if not setup then return end
  redis.call('SET', answer_key(get('key_id'), get('work')), cjson.encode({id, text(now), setup}), 'EX', ttl)
end

-- The job with the same work and API key, when it completed, and its result; nil unless a live worker with the same
-- setup, and with the requested GPU, would produce the same result.
local function earlier_result(key, work, gpu)
  local kept = redis.call('GET', answer_key(key, work))
  if not kept then return nil end
  local earlier, at, setup = unpack(cjson.decode(kept))
  for worker, its_setup in pairs(hash('workers:setup')) do
    if its_setup == setup and has_gpu(worker, gpu) and redis.call('EXISTS', 'worker:' .. worker) == 1 then
      local result = redis.call('GET', 'job:' .. earlier .. ':result')
      if result then return earlier, at, result end
    end
  end
end

-- The queue for a job that others have failed: of the workers that take jobs and have not failed it, that with the
-- shortest queue. The common queue, or that of its GPU, if no worker has failed it, or every worker has. Also returns
-- whether there is a worker that takes jobs and has not failed it.
local function choose_line()
  local gpu, failed = get('gpu'), {}
  for _, each in ipairs(failed_attempts()) do failed[each.worker] = true end
  local best, fewest = gpu == '' and common or common .. '.gpu.' .. gpu, math.huge
  if not next(failed) then return best end
  for _, worker in ipairs(redis.call('SMEMBERS', 'workers')) do
    if not failed[worker] and has_gpu(worker, gpu) and takes_jobs(worker) then
      local own = common .. '.' .. worker
      local length = redis.call('ZCARD', line_key(own))
      if length < fewest then best, fewest = own, length end
    end
  end
  return best, fewest < math.huge
end

-- The first job of these queues; once every `every` calls, the job that has waited longest, if longer than `bound_s`.
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
