"""Measures what the service itself costs a job, from outside, on the available device: `make bench`."""
