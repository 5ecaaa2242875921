"""How much a passed comparison shows."""
