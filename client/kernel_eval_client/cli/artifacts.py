"""`artifacts`: the code of a job's kernels as text and the profiler's reports, listed or saved."""

from __future__ import annotations

import argparse
from typing import Any

from kernel_eval_client.artifact import Artifact
from kernel_eval_client.cli.exits import Exit
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.terminal import Grid
from kernel_eval_client.errors import ServiceError


def artifacts(session: Session, given: argparse.Namespace) -> Exit:
    """Lists them, and with `--output` writes each to FOLDER/side/name."""
    found = session.client.artifacts(given.job_id)
    saved = {}
    for one in found if given.output is not None else ():
        if one.name is None:
            continue
        try:
            content = session.client.artifact_bytes(given.job_id, one)
        except ValueError as error:
            raise ServiceError(f"{one.side}/{one.name} is not saved: {error}; is there another service?") from error
        path = given.output / one.side / one.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        saved[one.side, one.name] = str(path)
    if session.as_json:
        session.write([_wire(one, saved.get((one.side, one.name or ""))) for one in found])
    elif found:
        session.out.table(_table(found, saved))
    else:
        session.out.say("None: the job was not asked for any (`--artifact ptx`), or has no result.")
    return Exit.PASSED


def _wire(one: Artifact, saved: str | None) -> dict[str, Any]:
    return {**vars(one), **({"saved": saved} if saved else {})}


def _table(found: list[Artifact], saved: dict[tuple[str, str], str]) -> Grid:
    table = Grid("side", "format", "kernel", "bytes", "name, or why there is none")
    table.columns[3].justify = "right"
    for one in found:
        kernel = " ".join(part for part in (one.kernel, one.variant) if part) or "–"
        place = saved.get((one.side, one.name or ""), one.name or f"unavailable: {one.unavailable}")
        cut = ", its end left out" if one.truncated else ""
        size = str(one.bytes) if one.name is not None else "–"
        table.add_row(one.side, one.format, kernel, size, place + cut)
    return table
