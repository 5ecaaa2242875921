"""What a person reads in a browser: pages made of a job's record alone, without scripts and without other hosts."""
