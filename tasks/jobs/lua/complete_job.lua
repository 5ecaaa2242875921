-- Ends a job with its result.
-- Argument:
--   id, attempt, verdict
--   ttl       seconds for which other jobs may use what this one tells of its work
--   counters  names of the counters to increment
--   buckets   upper bounds of the histograms' buckets, in s
--   reusable  whether the result may be reused
-- ARGV[2], ARGV[3]: the result and its summary as JSON. Then the artifacts: name, bytes, name, bytes, …
-- Reply: 1, or 0 if the attempt does not own the job.

local function observe(name, seconds)
  local function field(part) return name .. ':' .. part end
  count(field('count'))
  redis.call('HINCRBYFLOAT', 'jobs:counters', field('sum'), text(seconds))
  local low = tonumber(redis.call('HGET', 'jobs:counters', field('min')) or '') or seconds
  local high = tonumber(redis.call('HGET', 'jobs:counters', field('max')) or '') or seconds
  redis.call('HSET', 'jobs:counters', field('min'), text(math.min(low, seconds)),
             field('max'), text(math.max(high, seconds)))
  for _, bound in ipairs(arg.buckets) do
    if seconds <= bound then
      count(field('le:' .. bound))
      break
    end
  end
end

if not owns_job() then return 0 end
local result, summary = ARGV[2], ARGV[3]
redis.call('SET', job .. ':result', result)
redis.call('HSET', job, 'summary', summary)
finish('completed', arg.verdict)
-- Only an attempt that ran code shows that this worker's device works. A failed build does not, nor does an attempt on
-- another worker.
if get('timeline'):find('"stage":"validate","at":[%d.]+,"attempt":' .. arg.attempt .. '}') then
  redis.call('HDEL', 'workers:faults', get('worker'))
end
set_size(#result + #summary + store_artifacts({unpack(ARGV, 4)}))
if arg.reusable then register_for_reuse(arg.ttl) end
for _, name in ipairs(arg.counters) do count(name) end
observe('queue_seconds', stage_seconds('queued'))
observe('build_seconds', stage_seconds('build'))
update_expected(worker_seconds(), arg.ttl)
local waited, held_s = stage_seconds('wait_for_device'), device_seconds()
if waited then observe('device_wait_seconds', waited) end
if held_s then observe('run_seconds', held_s) end
observe('end_to_end_seconds', math.max(0, now - get('submitted_at')))  -- The clock may have been set back.
return 1
