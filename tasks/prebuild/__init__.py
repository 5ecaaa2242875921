"""Builds on nodes without a GPU, before the jobs start."""
