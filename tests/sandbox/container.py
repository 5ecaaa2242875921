"""What root is in a container."""

from sandbox import identity

DOCKERS_CAPABILITIES = 0xA80425FB
"""The fourteen that it leaves root unless told otherwise: without those to read everything, to trace, to mount."""

DEPLOYED_CAPABILITIES = sum(
    1 << capability
    for capability in (
        *(identity.CAP_CHOWN, identity.CAP_DAC_OVERRIDE, identity.CAP_KILL),
        *(identity.CAP_SETGID, identity.CAP_SETUID),
    )
)
"""The five of docker-compose.yml: CAP_FOWNER is none of them."""
