"""Inputs: drawn, read from a contract, poisoned."""
