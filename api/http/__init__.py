"""What every endpoint shares: bodies, limits, problems, waiting."""
