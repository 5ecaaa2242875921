"""What a build leaves: its archive and the two caches."""
