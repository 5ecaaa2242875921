"""The correctness stage of a job: inputs, trials, comparison, and the checks against shortcuts."""
