"""Thirty torch_cuda submissions in thirty ways of writing one, for `python -m benchmarks.builds`."""
