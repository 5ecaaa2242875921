-- Argument: id.
-- Reply: as `shared/read_job.lua` says.
return read_job(cjson.decode(ARGV[1]).id)
