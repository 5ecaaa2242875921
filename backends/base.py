"""The interface of a kernel type: `build` in a builder without a GPU, `load` and `call` in the runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from domain.cases.case import CaseSource
from domain.contract import IOContract
from domain.fault import KernelFault
from domain.inputs import DrawOn
from domain.kernel import Kernel
from domain.result import Status
from domain.wire import Wire


@dataclass(frozen=True)
class Target(Wire):
    """The device and architecture to build for and run on: a torch device name, and an `arch` such as "sm_90" or None.

    `toolchain` is the folder of the compilers for extensions (backends.extensions.toolchain), None for the stock ones.
    `draw_on` is where a source's own code makes its tensors, unless it cannot.
    """

    device: str
    arch: str | None = None
    toolchain: str | None = None
    draw_on: DrawOn = DrawOn.DEVICE

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class Artifact:
    """The result of a build for the runner: files in the job folder, and facts about them (JSON-ready).

    `deferred` says why the build has to happen in the runner, under the lease (a source that insists on a GPU).
    `example` are a reference's constructor arguments and inputs without content (`Task`), None if unknown.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    deferred: str | None = None
    log: str = ""
    example: Any = None


@dataclass(frozen=True)
class Task:
    """The facts of a job that a builder gets with the kernel.

    `example`: the constructor arguments and inputs that the reference's builder found, in wire form
    (`backends.dry_run.example`); None without a reference. `gradients`: whether the job calls the backward, too.
    `seconds`, `memory_bytes`: what a dry run may take.
    """

    example: Any = None
    gradients: bool = False
    seconds: float = 60.0
    memory_bytes: int = 2 << 30


ALONE = Task()
"""The task of a kernel of which nothing else is known."""


@dataclass(frozen=True)
class ReferenceArguments:
    """A reference's constructor arguments, None without any, and the parameters that these and a call's inputs reach.

    Names are in the order of the values, and empty where they are not known. A kernel alone has none of these.
    """

    init: list[Any] | None = None
    init_names: list[str] = field(default_factory=list)
    input_names: list[str] = field(default_factory=list)


NO_REFERENCE = ReferenceArguments()


class Executable(ABC):
    """A loaded kernel in its runner, ready to be called."""

    entry: str
    """The called object, as the source's author knows it: `class Model`, `function f`, `kernel vector_add`."""

    constructed_on: DrawOn | None = None
    """Where the constructor made its tensors; None without a constructor. A module's weights are on the device."""

    drawn_on: DrawOn = DrawOn.HOST
    """Where the last inputs of the source itself were made."""

    compiled: Sequence[str] = ()
    """Names of the extensions that had to be compiled so far while the job held the device."""

    not_built: Collection[str] = ()
    """Names of the extensions whose build failed so far, and whose error the source caught."""

    def use_case(self, kernel: Kernel) -> None:
        """From now on calls follow the contract of `kernel`, and `own_inputs` its case; its source is not read."""
        return

    @property
    def has_inputs(self) -> bool:
        return False

    @property
    def case_source(self) -> CaseSource:
        """The function that gives the source's own cases."""
        return CaseSource.GET_CASES

    def cases(self) -> list[dict[str, Any]] | None:
        """The source's own cases, None without any.

        They are the keyword arguments of `get_inputs` that `get_cases` lists, or the sets that `get_inputs` yields.
        """
        return None

    @abstractmethod
    def call(self, args: list[Any]) -> Any:
        """One call on the current stream (or the host), without synchronising.

        `args` are the contract's arguments in order, or the result of `own_inputs` or `inferred_inputs`: torch tensors
        on the target's device and Python numbers. Returns what the source returned: tensors on that device or numbers,
        on a CPU also numpy arrays, alone or nested (`sandbox.protocol.outputs`). None means that the contract's output
        arguments hold the outputs.
        """

    def resume(self) -> None:
        """Before first calls: restores the random generators to their state after the constructor.

        Whatever they draw (a lazy layer's weights) is then equal in reference and candidate, whatever ran in between.
        """
        return

    def call_double(self, args: list[Any], *, rounds: bool = False) -> Any:
        """One call in float64, inputs and weights doubled, on a copy; None where the kernel has no such form.

        `rounds`: the source's casts to bfloat16 and float16 round.
        """
        return None

    @property
    def graph_breaks(self) -> int | None:
        """How often the calls so far left what torch.compile compiled; None if the kernel is not called through it.

        Raises KernelFault if nothing was compiled.
        """
        return None

    def differentiable(self, args: list[Any]) -> dict[str, Any]:
        """The fields of the GradientPlan that a call's backward fulfils. Raises KernelFault where there is none."""
        raise KernelFault(Status.UNSUPPORTED, f"{self.entry} has no gradients: only Python sources have them")

    def arguments(self) -> ReferenceArguments:
        """The arguments that a candidate borrows if this is the reference: the source's own (`get_init_inputs`)."""
        return NO_REFERENCE

    def own_inputs(self, seed: int) -> list[Any] | None:
        """Inputs from the source itself (`get_inputs`) under that seed, each array a torch tensor; None without such a
        function."""
        return None

    def inferred_inputs(self, seed: int) -> tuple[list[Any], str] | None:
        """Inputs guessed from the source and confirmed by a call, with a description; None if no guess works."""
        return None

    def close(self) -> list[str]:
        """After the last call: frees what outlives this object; names what stays in the process all the same."""
        return []

    def state(self) -> dict[str, Any]:
        """The weights by name (torch tensors); empty for a kernel without any."""
        return {}

    def parameters(self) -> list[str]:
        """Names of the weights that a training would learn."""
        return []

    def load_state(self, state: dict[str, Any]) -> bool:
        """Copies these weights in, if each has a counterpart of its name, shape and kind of dtype; returns whether it
        did.

        Other weights of the kernel stay as they are.
        """
        return False


class ContractLaunch(ABC):
    """A launch by a contract, callable with the contract's arguments in order."""

    @abstractmethod
    def __call__(self, *args: Any) -> None:
        """Launches once."""

    @abstractmethod
    def follow(self, io: IOContract) -> None:
        """Launches by that contract from now on; its arguments have the names and roles of the first one."""


class Backend(ABC):
    """One kernel type. Both methods raise KernelFault for what is the source's fault."""

    @abstractmethod
    def build(self, kernel: Kernel, folder: Path, target: Target, task: Task = ALONE) -> Artifact:
        """Compiles into `folder` with no GPU visible."""

    @abstractmethod
    def load(
        self, kernel: Kernel, folder: Path, target: Target, artifact: Artifact, borrowed: ReferenceArguments, seed: int
    ) -> Executable:
        """Makes the kernel callable on `target`.

        `borrowed` are the reference's arguments, for a candidate. The seed is set before any constructor runs, so that
        two sources with the same layers start from the same weights.
        """
