"""What root is in a container."""

DOCKERS_CAPABILITIES = 0xA80425FB
"""The fourteen that it leaves root unless told otherwise: without those to read everything, to trace, to mount."""
