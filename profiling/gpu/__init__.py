"""State, peaks and errors of the GPU."""
