"""A package, so that one service lasts for its tests and no longer."""
