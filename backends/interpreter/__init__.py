"""Triton's interpreter, where there is no GPU."""
