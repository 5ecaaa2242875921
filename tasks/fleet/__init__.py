"""What workers tell each other through Redis: heartbeats, names, quarantine."""
