"""What is known again in the sentences of an answer by whoever reads it: writers make theirs with these words."""

UPPER_BOUND = "the time is an upper bound"
"""Of a time that was too short to be measured."""

TIMEOUT_NEAR = "the timeout was near"
"""Of what was left out for want of time: who allows more of it gets more."""

OF_THE_HOST = "so much more a busy host may take as well"
"""Of what is no word against a kernel that needs the host in each call."""

NO_TEMPORARY = (
    "submissions have no /tmp of their own on this worker: use `tempfile`, whose folder is the submission's, or a "
    "relative path"
)
"""The hint for a source that was refused a path below /tmp. Another worker may allow it one."""
