"""Right kernels, each with its subtly wrong versions: a referee is as good as the bugs that it finds.

Each file beside this one holds one `ORIGINAL`; its name is the file's. The sources are submissions as a user would send
them, a mutant is one replacement in such a source.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from domain.request import Request
from domain.result import Outcome, Status
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.backends.contracts import contract, scalar, tensor

FOLDER = Path(__file__).parent
NOT_KERNELS = ("__main__", "corpus")

CAUGHT = frozenset({Status.WRONG_RESULT, Status.RUNTIME_ERROR, Status.CRASHED, Status.TIMEOUT, Status.OUT_OF_MEMORY})
"""A wrong answer, or a fault while it ran. A mutant that does not compile is a mistake in the corpus."""


@dataclass(frozen=True)
class Mutant:
    """`old` occurs once in the source. `gpu_only`: an interpreter has no race, no TF32, and the like.

    `missed` says why the referee does not see it; its test is then a strict xfail. `beyond`: only inputs beyond the
    task show it, this distribution among them; the verdict is then `passed`, with that failure beside it.
    """

    bug: str
    old: str
    new: str
    gpu_only: bool = False
    missed: str | None = None
    beyond: str | None = None

    def is_caught(self, outcome: Outcome) -> bool:
        """Whether it ended as a mutant must."""
        if self.beyond is None:
            return outcome.status in CAUGHT
        failed = outcome.comparison.robustness.failed if outcome.comparison is not None else []
        return outcome.status is Status.PASSED and self.beyond in [failure.distribution for failure in failed]


@dataclass(frozen=True)
class Original:
    """A right kernel, its reference and its mutants by name. `atol` and `rtol` are what its user would ask for."""

    kernel_type: str
    source: str
    reference: str
    mutants: dict[str, Mutant]
    io: dict[str, Any] | None = None
    reference_io: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    atol: float = 1e-4
    rtol: float = 1e-4

    @property
    def needs_gpu(self) -> bool:
        return self.kernel_type in ("cuda", "torch_cuda")

    def mutated(self, mutant: Mutant) -> str:
        """The source with the bug; AssertionError when the replacement does not apply exactly once."""
        found = self.source.count(mutant.old)
        assert found == 1, f"{mutant.old!r} occurs {found} times in the source"
        assert mutant.old != mutant.new
        return self.source.replace(mutant.old, mutant.new)

    def request(self, mutant: Mutant | None = None) -> Request:
        """A comparison with the reference; the original's own when no mutant is given."""
        kernel = {
            "source_code": self.source if mutant is None else self.mutated(mutant),
            "kernel_type": self.kernel_type,
            "io": self.io,
            "metadata": self.metadata,
        }
        reference = {"source_code": self.reference, "kernel_type": "torch", "io": self.reference_io}
        return Request.from_wire(
            {
                "kernel": kernel,
                "reference": reference,
                # The validation's calls and one window: a bug is to be found by the fewest calls that a user may ask.
                "num_trials": 1,
                "timeout": 120,
                "atol": self.atol,
                "rtol": self.rtol,
            }
        )


def drawn(name: str, *shape: int, dtype: str = "float32", role: str = "input", **init: Any) -> dict[str, Any]:
    """A tensor argument whose content is drawn as `init` says (its kind and parameters)."""
    argument = tensor(name, *shape, dtype=dtype, role=role)
    argument["tensor_spec"]["init"] = init
    return argument


def matrix_product(m: int, n: int, k: int, *more: dict[str, Any], **launch: Any) -> dict[str, Any]:
    """Reference and contract of a kernel that gets a, b, c, m, n, k and `more`; no size is to be a tile's multiple."""
    makes = f"def get_inputs():\n    return [torch.randn({m}, {k}), torch.randn({k}, {n})]\n"
    sizes = (scalar("m", m), scalar("n", n), scalar("k", k))
    return {
        "reference": "class Model(torch.nn.Module):\n    def forward(self, a, b):\n        return a @ b\n\n" + makes,
        "io": contract(
            *(tensor("a", m, k), tensor("b", k, n), tensor("c", m, n, role="output"), *sizes, *more), **launch
        ),
    }


def judged(worker: WorkerContext, request: Request) -> Outcome:
    """The verdict about the request's kernel, by the real pipeline."""
    return run(request, worker).outcome


@cache
def originals() -> dict[str, Original]:
    """The whole corpus by name."""
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    chosen = [name for name in names if name not in NOT_KERNELS and not name.startswith("test_")]
    return {name: importlib.import_module(f"tests.mutants.{name}").ORIGINAL for name in chosen}
