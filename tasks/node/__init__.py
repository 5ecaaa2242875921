"""The machine that a worker runs on: folders, toolchain, device lease, connection to Redis."""
