"""Runs untrusted code: the supervisor, the runner, the isolation between them and their protocol."""
