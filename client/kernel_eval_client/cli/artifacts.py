"""`artifacts`: the code of a job's kernels as text and the profiler's reports, listed or saved."""

from __future__ import annotations

import argparse
from typing import Any

from kernel_eval_client.artifact import Artifact
from kernel_eval_client.cli.exits import Exit
from kernel_eval_client.cli.session import Session
from kernel_eval_client.cli.terminal import Grid
from kernel_eval_client.errors import ServiceError


def artifacts(session: Session, arguments: argparse.Namespace) -> Exit:
    """Lists the artifacts of a job; `--output FOLDER` also writes each to FOLDER/side/name."""
    listed = session.client.artifacts(arguments.job_id)
    saved = {}
    for artifact in listed if arguments.output is not None else ():
        if artifact.name is None:
            continue
        try:
            content = session.client.artifact_bytes(arguments.job_id, artifact)
        except ValueError as error:
            raise ServiceError(
                f"{artifact.side}/{artifact.name} is not saved: {error}; is there another service?"
            ) from error
        path = arguments.output / artifact.side / artifact.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        saved[artifact.side, artifact.name] = str(path)
    if session.as_json:
        session.write([_wire(artifact, saved.get((artifact.side, artifact.name or ""))) for artifact in listed])
    elif listed:
        session.out.table(_table(listed, saved))
    else:
        session.out.say("None: the job was not asked for any (`--artifact ptx`), or has no result.")
    return Exit.PASSED


def _wire(artifact: Artifact, saved: str | None) -> dict[str, Any]:
    return {**vars(artifact), **({"saved": saved} if saved else {})}


def _table(listed: list[Artifact], saved: dict[tuple[str, str], str]) -> Grid:
    table = Grid("side", "format", "kernel", "bytes", "name, or why there is none")
    table.columns[3].justify = "right"
    for artifact in listed:
        kernel = " ".join(part for part in (artifact.kernel, artifact.variant) if part) or "–"
        location = saved.get(
            (artifact.side, artifact.name or ""), artifact.name or f"unavailable: {artifact.unavailable}"
        )
        note = ", truncated" if artifact.truncated else ""
        size = str(artifact.bytes) if artifact.name is not None else "–"
        table.add_row(artifact.side, artifact.format, kernel, size, location + note)
    return table
