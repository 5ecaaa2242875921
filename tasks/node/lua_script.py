"""Lua scripts that Redis runs, each as one atomic step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from redis import Redis

_SCRIPTS = {path: path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("*.lua")}
"""All scripts of the package. Read at import, before a worker forks: where the code was changed in place since, a later
pool child would run the new scripts with the old code."""


class LuaScript:
    """A script that takes one structured argument. Its header lists the fields, and describes the reply."""

    def __init__(self, redis: Redis, *sources: Path) -> None:
        """`sources` are the file of the script, and before it the files of functions that it uses."""
        self._script = redis.register_script("\n".join(map(_SCRIPTS.__getitem__, sources)))

    def __call__(
        self,
        argument: Mapping[str, Any],
        *texts: str | bytes,
        keys: Sequence[str] = (),
        client: Redis | None = None,
    ) -> Any:
        """Run the script, in `client` if that is a pipeline; returns its reply.

        ARGV[1] is `argument` as JSON, without its fields of None: the script sees nil. `texts` follow as they are.
        """
        fields = {name: value for name, value in argument.items() if value is not None}
        encoded = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return self._script(keys=keys, args=[encoded, *texts], client=client)
