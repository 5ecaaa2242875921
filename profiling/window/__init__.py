"""One timed window: buffers, gate, clock."""
