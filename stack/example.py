"""The examples as requests: `examples/<name>/` with its sources inlined, and the expected verdict."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from backends.languages.registry import LANGUAGES, is_installed
from domain.paths import ROOT
from domain.result import Status

FOLDER = ROOT / "examples"
KERNELS = ("kernel", "ref_kernel", "custom_kernel")


@dataclass(frozen=True)
class Example:
    """One request, and its expected verdicts with and without a GPU."""

    name: str
    endpoint: str
    body: dict[str, Any]
    on_gpu: Status
    on_cpu: Status
    faster: bool
    note: str

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Loads an example; raises KeyError, ValueError or OSError if a part is missing or malformed."""
        body = json.loads((folder / "request.json").read_text(encoding="utf-8"))
        for kernel in (body[key] for key in KERNELS if key in body):
            kernel["source_code"] = (folder / kernel.pop("source_file")).read_text(encoding="utf-8")
        expected = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
        return cls(
            name=folder.name,
            endpoint=expected["endpoint"],
            body=body,
            on_gpu=Status(expected["verdict"]["gpu"]),
            on_cpu=Status(expected["verdict"]["cpu"]),
            faster=expected.get("faster", False),
            note=expected["note"],
        )

    def expected(self, *, gpu: bool) -> Status:
        """The verdict of a service that has this process's packages: a language that is not there is unsupported."""
        kernel_types = {self.body[key]["kernel_type"] for key in KERNELS if key in self.body}
        if kernel_types & {language.name for language in LANGUAGES if not is_installed(language)}:
            return Status.UNSUPPORTED
        return self.on_gpu if gpu else self.on_cpu


def every_example(folder: Path = FOLDER) -> list[Example]:
    return [Example.load(request.parent) for request in sorted(folder.glob("*/request.json"))]
