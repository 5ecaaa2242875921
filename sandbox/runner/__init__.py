"""Untrusted: the code that runs inside the process of a submission."""
