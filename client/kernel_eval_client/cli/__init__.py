"""`kernel-eval`: the client as a command."""
