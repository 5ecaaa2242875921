"""Loads the kernels into fresh runners and calls each once, before the referee validates anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from domain.fault import KernelFault
from domain.result import Status
from profiling.window.call_buffers import bytes_per_call
from profiling.window.timed_window import WindowSession
from tasks.correctness.input_batches import Arguments
from tasks.runtime.freeze import frozen_others
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext
from validation.compare.output_matching import match_outputs
from validation.inputs.contract_inputs import ContractInputs

PROBE_CALLS = 4
COMPILED_LATE = (
    "compiled with the device held, as in every job: {names}; what `load` or `load_inline` builds where the source is "
    "imported, and not in a build_directory outside of its own folder and /tmp, is compiled beforehand and kept"
)


class Preparation:
    """Prepares the kernels of one job, each in a runner: the reference, if there is one, and the candidate."""

    def __init__(self, contenders: list[KernelRun], bench: WorkerContext) -> None:
        self.contenders = contenders
        self.bench = bench

    def time_launches(self, cancelled: Callable[[], bool]) -> None:
        """Measure launch overhead, before any submission is loaded. A device's first job also measures its peaks."""
        for contender in self.contenders:
            if contender.pooled_runner is not None:
                contender.launch_shift_ms = self.bench.launch_shift_ms(contender.pooled_runner, cancelled)

    def load(self, deadline: float, seed: int) -> None:
        """Load every kernel, one after the other."""
        for contender in self.contenders:
            contender.open_session.set_deadline(deadline)
            contender.spent_s = 0.0
        if len(self.contenders) > 1:
            self.contenders[0].candidate = self.contenders[1]
            self.contenders[1].reference = self.contenders[0]
        for contender in self.contenders:
            self._load(contender, seed)

    def first_calls(self, example: dict[str, Arguments]) -> None:
        """Call all kernels at once, so that loading libraries takes only the longer of both times.

        On the CPU they run one after the other, because a kernel with many processes would slow the other down.
        """
        groups = [self.contenders] if self.bench.device.is_cuda else [[contender] for contender in self.contenders]
        for group in groups:
            with frozen_others((other for other in self.contenders if other not in group), self.bench.device):
                self._first_calls(group, example)
        if len(self.contenders) > 1:
            self._match_outputs()

    def _first_calls(self, contenders: list[KernelRun], example: dict[str, Arguments]) -> None:
        for contender in contenders:
            with contender.attribute_faults():
                contender.open_session.start_probe(example[contender.role], PROBE_CALLS)
        for contender in contenders:
            with contender.attribute_faults():
                contender.probe = contender.open_session.finish_probe()
                if contender.probe.compiled:
                    contender.compiled_at_run_time = COMPILED_LATE.format(names=", ".join(contender.probe.compiled))
                if len(self.contenders) > 1 and not contender.probe.outputs:
                    raise KernelFault(
                        Status.WRONG_RESULT,
                        f"the {contender.role} answered with no tensor and no number, so that there is nothing to "
                        "compare: return one, or give a contract (`io`) with an output argument",
                    )
                self._admit(bytes_per_call(example[contender.role], contender.returned))

    def _match_outputs(self) -> None:
        """Put the candidate's outputs into the order of the reference's outputs."""
        expected, candidate = self.contenders[0].probe, self.contenders[-1]
        actual = candidate.probe
        if expected is None or actual is None:
            raise ValueError("not probed")
        with candidate.attribute_faults():
            order = match_outputs(expected.form, actual.form)
            if order != sorted(order):
                candidate.probe = actual.ordered(order)
                candidate.open_session.order(order)

    def _load(self, contender: KernelRun, seed: int) -> None:
        if not contender.is_unmodified:
            # Only a process that a builder left behind, or the other kernel, can have changed the files.
            message = f"files of the {contender.role} were changed from outside after its build"
            candidate = self.contenders[-1]
            candidate.fail(KernelFault(Status.CRASHED, message, compiled=candidate.compiled))
        session = contender.open_session
        contender.window_session = WindowSession(session, self.bench.device)
        with contender.attribute_faults():
            # Check before drawing: the host overcommits memory, and the kernel would kill this process.
            if contender.kernel.io is not None:
                self._admit(ContractInputs(contender.kernel.io, self.bench.device.name, None).nbytes)
            # Both models start from the same seed, so that equal layers have equal weights.
            contender.loaded = session.load(contender.kernel, contender.artifact, self._init_arguments(contender), seed)
        contender.compiled = True
        contender.entry = contender.loaded.entry
        contender.facts |= contender.loaded.facts

    def _init_arguments(self, contender: KernelRun) -> list[Any] | None:
        """The reference's constructor arguments, which the candidate gets too."""
        reference = self.contenders[0]
        return reference.loaded.init if contender is not reference and reference.loaded is not None else None

    def _admit(self, size: int) -> None:
        """Raise KernelFault (OUT_OF_MEMORY) if one call's tensors exceed the memory that this process allows."""
        if size > self.bench.call_memory:
            raise KernelFault(
                Status.OUT_OF_MEMORY,
                f"inputs and outputs of one call take {size >> 20} MiB; this worker allows "
                f"{self.bench.call_memory >> 20} MiB: make them smaller",
                compiled=True,
            )
