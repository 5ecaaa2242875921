"""The runners of a job, their pool, and the long-lived resources of a pool child."""
