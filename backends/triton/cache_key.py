"""Computes what Triton asks about its own files and tools before a cache lookup, once for all processes of a zygote.

The digest of its own library takes 0.3 to 0.5 s. Each process that builds or calls a Triton kernel would spend that,
while its job holds the device (docs/measurements.md).
"""

from __future__ import annotations

import importlib
import re
from contextlib import suppress


def cache_identity(arch: str) -> None:
    """Makes Triton cache its results for kernels of that architecture ("sm_90")."""
    capability = int(re.sub(r"\D", "", arch))
    for module, function, arguments in (
        ("triton.runtime.cache", "triton_key", ()),
        ("triton.runtime.build", "platform_key", ()),
        ("triton.backends.nvidia.compiler", "get_ptxas", (capability,)),
        ("triton.backends.nvidia.compiler", "get_ptxas_version", (capability,)),
        ("triton.backends.nvidia.driver", "library_dirs", ()),
    ):
        with suppress(Exception):  # May fail without a driver; a process that needs it asks again.
            getattr(importlib.import_module(module), function)(*arguments)
