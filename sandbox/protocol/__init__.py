"""The exchange between supervisor and runner: messages, shared memory, outputs."""
