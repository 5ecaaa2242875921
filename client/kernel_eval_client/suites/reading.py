"""Reads the problems of a suite from a folder, in any of the layouts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_eval_client.errors import CallerError
from kernel_eval_client.suites import flashinfer, folder, gpu_mode, robust_kbench
from kernel_eval_client.suites.problem import Problem

STARTER = Path(__file__).with_name("starter")
"""The folder of the starter suite, which is part of this package."""

LAYOUTS = ("kernelbench", "gpu-mode", "flashinfer", "robust-kbench")


def read(
    name: str | Path, candidates: Path | None = None, *, layout: str | None = None, small: bool = False
) -> list[Problem]:
    """The problems of a folder, or of the suite `starter`. Without `layout`, the folder's files decide it.

    `candidates` is a separate folder with the candidates. `small` selects the sizes for a machine without a GPU, which
    only KernelBench's layout has. Raises CallerError for a folder that is missing or has no problem.
    """
    root = STARTER if str(name) == "starter" and not Path(name).is_dir() else Path(name)
    for path in (root, candidates):
        if path is not None and not path.is_dir():
            own = "" if path is candidates else "; the suite of this package is `starter`"
            raise CallerError(f"{path} is no folder{own}")
    kind = layout or detect_layout(root)
    if small and kind != "kernelbench":
        raise CallerError(f"a suite of the layout {kind} has no small sizes")
    problems: Sequence[Problem]
    if kind == "gpu-mode":
        problems = list(gpu_mode.read_problems(root, candidates))
    elif kind == "flashinfer":
        problems = list(flashinfer.read_problems(root, candidates))
    elif kind == "robust-kbench":
        problems = list(robust_kbench.read_problems(root, candidates))
    else:
        problems = list(folder.read_problems(root, candidates, small=small))
    if not problems:
        raise CallerError(
            f"{root} has no problem of the layout {kind}; docs/suites.md describes the files of each layout"
        )
    return list(problems)


def detect_layout(root: Path) -> str:
    """The layout, by files that only one of them has."""
    if next(root.rglob("task.yml"), None) is not None:
        return "gpu-mode"
    if next(root.rglob(robust_kbench.REFERENCE), None) is not None:
        return "robust-kbench"
    return "flashinfer" if (root / "definitions").is_dir() else "kernelbench"
