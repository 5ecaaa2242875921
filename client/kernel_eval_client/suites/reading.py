"""From a folder or a name to problems, whichever layout the folder has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_eval_client.errors import CallerError
from kernel_eval_client.suites import flashinfer, folder, gpu_mode
from kernel_eval_client.suites.problem import Problem

STARTER = Path(__file__).with_name("starter")
"""The suite that comes along."""

LAYOUTS = ("kernelbench", "gpu-mode", "flashinfer")


def read(
    name: str | Path, candidates: Path | None = None, *, layout: str | None = None, small: bool = False
) -> list[Problem]:
    """The problems of a folder, or of `starter`. The layout is told by what is there unless it is named.

    `small` takes the sizes for a machine without a GPU, which only KernelBench's layout has. Raises CallerError for a
    folder that is not there or has no problem.
    """
    root = STARTER if str(name) == "starter" and not Path(name).is_dir() else Path(name)
    for each in (root, candidates):
        if each is not None and not each.is_dir():
            raise CallerError(
                f"{each} is no folder" + ("" if each is candidates else ", and no suite that comes along")
            )
    kind = layout or layout_of(root)
    if small and kind != "kernelbench":
        raise CallerError(f"a suite of the layout {kind} has no small sizes")
    found: Sequence[Problem]
    if kind == "gpu-mode":
        found = list(gpu_mode.problems_in(root, candidates))
    elif kind == "flashinfer":
        found = list(flashinfer.problems_in(root, candidates))
    else:
        found = list(folder.problems_in(root, candidates, small=small))
    if not found:
        raise CallerError(f"{root} has no problem of the layout {kind}; docs/suites.md describes what is looked for")
    return list(found)


def layout_of(root: Path) -> str:
    """By the files that only one of them has."""
    if next(root.rglob("task.yml"), None) is not None:
        return "gpu-mode"
    return "flashinfer" if (root / "definitions").is_dir() else "kernelbench"
