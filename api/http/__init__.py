"""Everything that endpoints share: bodies, limits, problems, waiting."""
