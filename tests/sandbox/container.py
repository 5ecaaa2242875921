"""What root is in a container."""

from sandbox.isolation.uid import CAPABILITIES

DOCKERS_CAPABILITIES = 0xA80425FB
"""The fourteen that it leaves root unless told otherwise: without those to read everything, to trace, to mount."""

DEPLOYED_CAPABILITIES = sum(1 << capability for capability in CAPABILITIES.values())
"""The five of docker-compose.yml: CAP_FOWNER is none of them."""
