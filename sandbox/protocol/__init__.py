"""What supervisor and runner exchange: messages, shared memory, outputs."""
