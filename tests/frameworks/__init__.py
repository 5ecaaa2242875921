"""The examples for training frameworks (examples/rl), each called by the real package: `make frameworks`."""
