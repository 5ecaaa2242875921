"""Untrusted: what runs inside the process of a submission."""
