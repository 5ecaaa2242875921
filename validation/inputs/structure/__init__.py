"""Structure of inputs: what all drawn sets have in common, and other sets that have it too."""
