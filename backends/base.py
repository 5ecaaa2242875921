"""The interface of a kernel type: `build` in a builder without a GPU, `load` and `call` in the runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from domain.kernel import Kernel, KernelType


@dataclass(frozen=True)
class Target:
    """What the kernel is built for and run on. `device` is a torch device name; `arch` such as "sm_90" or None.

    `toolchain` is the folder of the compilers for extensions (backends.extensions.toolchain), None for the stock ones.
    """

    device: str
    arch: str | None
    toolchain: str | None = None

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class Artifact:
    """What a build leaves for the runner: files inside the job folder, and plain facts about them (JSON-ready).

    `deferred` says why the build has to happen in the runner, under the lease (a source that insists on a GPU).
    """

    facts: dict[str, Any] = field(default_factory=dict)
    deferred: str | None = None
    log: str = ""


class Executable(ABC):
    """A loaded kernel in its runner, ready to be called."""

    entry: str
    """What is called, in words a person knows from the source: `class Model`, `function f`, `kernel vector_add`."""

    compiled: Sequence[str] = ()
    """Extensions that were not there and had to be compiled with the device in hand, so far, by name."""

    @abstractmethod
    def call(self, args: list[Any]) -> Any:
        """One call on the current stream (or the host), without synchronising.

        `args` are the contract's arguments in order, or what `own_inputs`/`inferred_inputs` gave. Returns what the
        source returned; None means that the contract's output arguments hold the answer.
        """

    def resume(self) -> None:
        """Before first calls: puts the random generators where the constructor left them.

        What they draw (a lazy layer's weights) is then alike in all contenders, whatever each was asked before.
        """
        return

    def call_double(self, args: list[Any]) -> Any:
        """One call in float64, inputs and weights doubled, on a copy; None where the kernel has no such form."""
        return None

    def init_inputs(self) -> list[Any] | None:
        """Constructor arguments that the source itself gives (`get_init_inputs`); None when it gives none."""
        return None

    def own_inputs(self, seed: int) -> list[Any] | None:
        """Inputs that the source itself makes (`get_inputs`) under that seed; None when it makes none."""
        return None

    def inferred_inputs(self, seed: int) -> tuple[list[Any], str] | None:
        """Inputs guessed from the source and tried, and a sentence that says what was guessed; None if nothing fits."""
        return None

    def state(self) -> dict[str, Any]:
        """The weights by name (torch tensors); empty for what has none."""
        return {}

    def parameters(self) -> list[str]:
        """Which of them a training would learn, by name."""
        return []

    def load_state(self, state: dict[str, Any]) -> bool:
        """Copies those weights in, where each has one of its name, shape and kind of dtype, and says whether it did.

        What the kernel has beside them is left as it is.
        """
        return False


class Backend(ABC):
    """One kernel type. Both methods raise KernelFault for what is the source's fault."""

    kernel_type: ClassVar[KernelType]

    @abstractmethod
    def build(self, kernel: Kernel, folder: Path, target: Target) -> Artifact:
        """Compile into `folder` with no GPU visible."""

    @abstractmethod
    def load(
        self, kernel: Kernel, folder: Path, target: Target, artifact: Artifact, init: list[Any] | None, seed: int
    ) -> Executable:
        """Make the kernel callable on `target`.

        `init` are constructor arguments to use where the source gives none (a reference's); `seed` is set before any
        constructor runs, so that two sources with the same layers start from the same weights.
        """
