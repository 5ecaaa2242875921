"""The bounds that bandwidth and arithmetic throughput set."""
