"""State of all workers, shared through Redis: heartbeats, names, quarantine, readings."""
