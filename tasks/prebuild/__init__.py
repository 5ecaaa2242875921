"""Builds on nodes without a GPU, ahead of the job."""
