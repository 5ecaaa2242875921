"""Hardware counters that Nsight Compute prints."""
