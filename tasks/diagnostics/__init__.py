"""After the timing: profilers, sanitizers, listings, and whose fault a failure of the GPU is."""
