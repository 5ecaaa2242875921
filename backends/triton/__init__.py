"""Kernel type `triton`."""
