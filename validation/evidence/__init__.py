"""Evidence: how much a passed comparison shows, and whether a difference is a fault."""
