"""What the stages of a job run on: runners, their pool, and the long-lived resources of a pool child."""
