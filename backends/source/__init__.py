"""A Python submission: module, entry point, inputs, errors."""
