"""Inputs, comparison, tolerance, evidence. Trusted: runs in the referee, and never runs a submission's code."""
