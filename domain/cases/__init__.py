"""The cases of one job, and what is found for each."""
