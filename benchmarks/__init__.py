"""What the service itself costs a job, measured from outside on whatever device is there: `make bench`."""
