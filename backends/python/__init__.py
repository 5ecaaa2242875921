"""Kernel types that are Python modules: `torch` and `torch_cuda`."""
