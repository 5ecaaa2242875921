"""Kernel languages inside Python, one module each: how a source shows its language, what it needs, how it compiles."""
