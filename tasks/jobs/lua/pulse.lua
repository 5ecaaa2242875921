-- Records that the owner of an attempt is alive.
-- Argument: id, attempt; owner_ttl, seconds until the owner counts as gone.
-- Reply: 'go on', 'cancel', or 'lost' if the attempt does not own the job.
if not owns_job() then return 'lost' end
redis.call('SET', job .. ':owner', arg.attempt, 'EX', arg.owner_ttl)
return get('cancel_requested') ~= '' and 'cancel' or 'go on'
