"""Statements about a speed: over baselines, confirmed or not, and how far from the least time."""
