"""From samples to a time, a spread and a speed-up."""
