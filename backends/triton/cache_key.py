"""What Triton asks of its own files and tools before it looks into its cache, asked once for all processes of a zygote.

The digest of its own library takes 0.3 to 0.5 s, for which each process that builds or calls a Triton kernel would
wait, and the device with it (docs/measurements.md).
"""

from __future__ import annotations

import importlib
import re
from contextlib import suppress


def learn(arch: str) -> None:
    """Has Triton remember its answers for kernels of that architecture ("sm_90")."""
    capability = int(re.sub(r"\D", "", arch))
    for module, function, arguments in (
        ("triton.runtime.cache", "triton_key", ()),
        ("triton.runtime.build", "platform_key", ()),
        ("triton.backends.nvidia.compiler", "get_ptxas", (capability,)),
        ("triton.backends.nvidia.compiler", "get_ptxas_version", (capability,)),
        ("triton.backends.nvidia.driver", "library_dirs", ()),
    ):
        with suppress(Exception):  # It is of Triton's inside, and a node may have no driver: who needs it asks again.
            getattr(importlib.import_module(module), function)(*arguments)
