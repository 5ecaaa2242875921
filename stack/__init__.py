"""The whole service on one machine: Redis, the API and one worker per GPU, started and stopped together."""
