"""Turns samples into a time, a spread and a speed-up."""
