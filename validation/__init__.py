"""Inputs, comparison, tolerance, integrity. Trusted: runs in the referee, and never runs a submission's code."""
