"""Pages about several jobs, made of their records and results alone."""
