-- Removes the shares that ended before the current virtual time, as they no longer delay anyone.
-- Argument: {}.
for share, ends in pairs(hash('jobs:shares')) do
  if tonumber(ends) <= reached(string.match(share, '^%d+')) then redis.call('HDEL', 'jobs:shares', share) end
end
