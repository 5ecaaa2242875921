"""Statistics of samples, and when to stop."""
