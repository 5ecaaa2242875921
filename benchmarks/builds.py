"""`python -m benchmarks.builds`: builds extensions in thirty styles as the service does and as torch does.

With a GPU, it also calls both builds and compares their outputs bit by bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from backends.extensions import toolchain
from stack import demo_report
from stack.terminal import Terminal

SOURCES = Path(__file__).parent / "extensions"
ARCH_WITHOUT_DEVICE = "sm_90"


class CaseError(Exception):
    """The process of a case ended without a result."""


@dataclass(frozen=True)
class Built:
    """One build of one source."""

    compiled: bool
    seconds: float
    processor_s: float
    headers: list[str]
    symbols: list[str]
    log: str


@dataclass
class Pair:
    """The builds of one source: the service's, and torch's own if it was requested."""

    name: str
    lean: Built
    stock: Built | None
    same_outputs: bool | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        return self.lean.seconds / self.stock.seconds if self.stock is not None else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.builds", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these sources (files of benchmarks/extensions)")
    parser.add_argument("--at-once", type=int, default=1, help="builds that run at the same time")
    parser.add_argument("--no-stock", action="store_true", help="ours alone")
    parser.add_argument("--state", type=Path, help="keep the toolchain in this folder (default: a temporary one)")
    parser.add_argument("--out", type=Path, help="also write the figures to this file, as JSON")
    options = parser.parse_args()
    console = Terminal(soft_wrap=True)
    if not console.is_terminal:
        console.width = demo_report.WIDTH
    names = options.names or sorted(path.stem for path in SOURCES.glob("[a-z]*.py"))
    with tempfile.TemporaryDirectory() as temporary:
        compilers = _toolchain(options.state or Path(temporary), console)
        with ThreadPoolExecutor(options.at_once) as pool:
            compared = partial(compare, compilers=compilers, parent=Path(temporary), no_stock=options.no_stock)
            pairs = []
            for pair in pool.map(compared, names):
                pairs.append(pair)
                stock = f", stock {pair.stock.seconds:.1f} s" if pair.stock else ""
                console.print(f"{len(pairs)} of {len(names)}: {pair.name} {pair.lean.seconds:.1f} s{stock}")
    console.print(_table(pairs))
    for pair in pairs:
        for problem in pair.problems:
            console.print(f"{pair.name}: {problem}")
    ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
    if ratios:
        console.print(f"lean over stock: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}")
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(pair) for pair in pairs], indent=2) + "\n", encoding="utf-8")
    return int(any(pair.problems for pair in pairs))


def _toolchain(parent: Path, console: Terminal) -> str:
    folder = toolchain.prepare(parent / "toolchains")
    if folder is None:
        raise SystemExit("there is no C++ compiler here")
    console.print(f"{os.cpu_count()} host CPUs")
    return str(folder)


def compare(name: str, compilers: str, parent: Path, *, no_stock: bool = False) -> Pair:
    """Builds one source both ways below `parent`, and lists the differences."""
    source = (SOURCES / f"{name}.py").read_text(encoding="utf-8")
    lean_folder, stock_folder = parent / f"{name}-lean", parent / f"{name}-stock"
    pair = Pair(name, _built(source, lean_folder, compilers), None if no_stock else _built(source, stock_folder, None))
    if not pair.lean.compiled:
        pair.problems.append(f"does not compile: {pair.lean.log}")
    if pair.stock is None:
        return pair
    if not pair.stock.compiled:
        pair.problems.append(f"does not compile the stock way: {pair.stock.log}")
    if pair.lean.symbols != pair.stock.symbols:
        pair.problems.append(f"exports {pair.lean.symbols}, not {pair.stock.symbols}")
    if torch.cuda.is_available():
        pair.same_outputs = _outputs(source, lean_folder, compilers) == _outputs(source, stock_folder, None)
        if not pair.same_outputs:
            pair.problems.append("other outputs than the stock build's")
    return pair


def _built(source: str, folder: Path, compilers: str | None) -> Built:
    folder.mkdir()
    answer = _case({"do": "build", "source": source, "folder": str(folder), "toolchain": compilers}, gpu=False)
    library = next(folder.glob("ext/[!.]*/*.so"), None)
    return Built(**answer, symbols=_symbols(library) if library is not None else [])


def _outputs(source: str, folder: Path, compilers: str | None) -> list[str]:
    answer = _case({"do": "call", "source": source, "folder": str(folder), "toolchain": compilers}, gpu=True)
    outputs: list[str] = answer["outputs"]
    return outputs


def _case(case: dict[str, Any], *, gpu: bool) -> dict[str, Any]:
    hidden = {} if gpu else {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.build_case"],
        input=json.dumps({**case, **_device()}),
        env={**os.environ, **hidden, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},  # noqa: TID251 - handed on
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CaseError(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _device() -> dict[str, str]:
    if not torch.cuda.is_available():
        return {"device": "cpu", "arch": ARCH_WITHOUT_DEVICE}
    major, minor = torch.cuda.get_device_capability(0)
    return {"device": "cuda:0", "arch": f"sm_{major}{minor}"}


def _symbols(library: Path) -> list[str]:
    """The exported functions of the source itself: strong symbols."""
    listing = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return sorted(line.split()[-1] for line in listing.stdout.splitlines() if line.split()[1] == "T")


def _table(pairs: list[Pair]) -> Table:
    table = Table("source", "ours (s)", "stock (s)", "ratio", "processor ratio", "outputs", "headers")
    for pair in pairs:
        stock = pair.stock
        table.add_row(
            pair.name,
            f"{pair.lean.seconds:.1f}",
            f"{stock.seconds:.1f}" if stock else "",
            f"{pair.ratio:.2f}" if pair.ratio is not None else "",
            f"{pair.lean.processor_s / stock.processor_s:.2f}" if stock else "",
            {True: "same", False: "differ", None: "not run"}[pair.same_outputs],
            "; ".join(pair.lean.headers),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
