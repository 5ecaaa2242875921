"""What is known again in the sentences of an answer by whoever reads it: writers make theirs with these words."""

UPPER_BOUND = "the time is an upper bound"
"""Of a time that was too short to be measured."""

TIMEOUT_NEAR = "the timeout was near"
"""Of what was left out for want of time: who allows more of it gets more."""
