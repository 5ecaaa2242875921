"""Runs a Python source in a builder as if the target's GPU were there, so that it compiles what its run will need."""
