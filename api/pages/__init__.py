"""Pages for a browser, made from a job's record alone, without scripts and without other hosts."""
