"""Diagnostics after the timing: profilers, sanitizers, code listings, and the attribution of GPU failures."""
