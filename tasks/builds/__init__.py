"""Finished builds: their archive, and the two caches that store it."""
