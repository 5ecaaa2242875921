"""Signs that a time is not what it seems."""
