"""Precompiles the lean headers for host code, and decides which compilations can use the result."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

from backends.extensions.minimal_headers import HOST, OWN

INCLUDED = f"{OWN}/host.h"
OPTIMISATION: tuple[tuple[str, ...], ...] = ((), ("-O3",), ("-O2",))
"""The usual `extra_cflags`; a precompiled header takes a third of a gigabyte, so others get none."""

_FOR_CODE = re.compile(r"-(?:O|std=|f|m|g|ansi|pthread|x)")
"""Flags that a precompiled header and its user must share; the compiler itself checks macros."""


def variant(arguments: list[str]) -> str:
    """A name for the flags that affect the headers' code."""
    flags = [argument for argument in arguments if _FOR_CODE.match(argument)]
    return hashlib.blake2b(" ".join(flags).encode(), digest_size=8).hexdigest()


def precompile(compiler: str, folder: Path, includes: list[str], flags: list[str]) -> None:
    """Builds the header for those flags below `folder`, unless it exists; complete or not at all.

    `includes` are the folders of torch and Python. Raises CalledProcessError, OSError.
    """
    done = folder / "pch" / variant(flags) / f"{INCLUDED}.gch"
    if done.exists():
        return
    done.parent.mkdir(parents=True, exist_ok=True)
    draft = done.with_name(f"draft.{os.getpid()}")
    header = str(folder / "include" / INCLUDED)
    search = [part for include in includes for part in ("-isystem", include)]
    macros = [f"-D{HOST}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    try:
        subprocess.run(
            [
                compiler,
                *macros,
                f"-I{folder / 'include'}",
                *search,
                *flags,
                "-x",
                "c++-header",
                header,
                "-o",
                str(draft),
            ],
            check=True,
            capture_output=True,
        )
        draft.chmod(0o444)
        draft.rename(done)
    finally:
        draft.unlink(missing_ok=True)
