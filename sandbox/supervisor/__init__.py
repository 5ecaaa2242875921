"""Trusted: starts, watches and ends the processes that run a submission."""
