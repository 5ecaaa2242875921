"""Comparison of outputs with the expected ones."""
