"""How long a kernel takes, by the referee's own clock."""
