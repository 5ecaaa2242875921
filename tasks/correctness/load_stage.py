"""From fresh runners to kernels that have been called: what a job needs before anything is judged."""

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
from validation.compare.output_matching import answer_order
from validation.inputs.contract_inputs import ContractInputs

PROBE_CALLS = 4
COMPILED_LATE = (
    "compiled with the device held, as in every job: {names}; what `load` or `load_inline` builds where the source is "
    "imported, and not in a build_directory outside of its own folder and /tmp, is compiled beforehand and kept"
)


class Preparation:
    """Of one job's contenders, each with a runner: the reference, where there is one, and the candidate."""

    def __init__(self, contenders: list[KernelRun], bench: WorkerContext) -> None:
        self.contenders = contenders
        self.bench = bench

    def time_launches(self, cancelled: Callable[[], bool]) -> None:
        """While nothing of a submission is in any runner. On a card's first job its ceilings are measured here too."""
        for contender in self.contenders:
            if contender.pooled_runner is not None:
                contender.launch_shift_ms = self.bench.launch_shift_ms(contender.pooled_runner, cancelled)

    def load(self, deadline: float, seed: int) -> None:
        """Loads every kernel, one after the other."""
        for contender in self.contenders:
            contender.open_session.until(deadline)
            contender.spent_s = 0.0
        if len(self.contenders) > 1:
            self.contenders[0].candidate = self.contenders[1]
            self.contenders[1].reference = self.contenders[0]
        for contender in self.contenders:
            self._load(contender, seed)

    def first_calls(self, example: dict[str, Arguments]) -> None:
        """Of all contenders at once: what they make the libraries load takes the longer of both times.

        On the host in turn, as one with many processes would take the other's time.
        """
        turns = [self.contenders] if self.bench.device.is_cuda else [[contender] for contender in self.contenders]
        for turn in turns:
            with frozen_others((other for other in self.contenders if other not in turn), self.bench.device):
                self._first_calls(turn, example)
        if len(self.contenders) > 1:
            self._match_outputs()

    def _first_calls(self, contenders: list[KernelRun], example: dict[str, Arguments]) -> None:
        for contender in contenders:
            with contender.attribute_faults():
                contender.open_session.start_probe(example[contender.role], PROBE_CALLS)
        for contender in contenders:
            with contender.attribute_faults():
                contender.probe = contender.open_session.probed()
                if contender.probe.compiled:
                    contender.compiled_late = COMPILED_LATE.format(names=", ".join(contender.probe.compiled))
                if len(self.contenders) > 1 and not contender.probe.outputs:
                    raise KernelFault(
                        Status.WRONG_RESULT,
                        f"the {contender.role} answered with no tensor and no number, so that there is nothing to "
                        "compare: return one, or give a contract (`io`) with an output argument",
                    )
                self._admit(bytes_per_call(example[contender.role], contender.returned))

    def _match_outputs(self) -> None:
        """Has the candidate's outputs stand, and handed in, where those are that they are compared with."""
        wanted, candidate = self.contenders[0].probe, self.contenders[-1]
        given = candidate.probe
        if wanted is None or given is None:
            raise ValueError("not probed")
        with candidate.attribute_faults():
            order = answer_order(wanted.form, given.form)
            if order != sorted(order):
                candidate.probe = given.ordered(order)
                candidate.open_session.order(order)

    def _load(self, contender: KernelRun, seed: int) -> None:
        if not contender.is_unmodified:
            # Nothing runs at this time but what a builder may have left behind, or the other contender.
            message = f"files of the {contender.role} were changed from outside after its build"
            candidate = self.contenders[-1]
            candidate.fail(KernelFault(Status.CRASHED, message, compiled=candidate.compiled))
        session = contender.open_session
        contender.window_session = WindowSession(session, self.bench.device)
        with contender.attribute_faults():
            # Asked before anything is drawn: the host's memory is overcommitted, and this process would be killed.
            if contender.kernel.io is not None:
                self._admit(ContractInputs(contender.kernel.io, self.bench.device.name, None).nbytes)
            # The same seed for both: two models with the same layers start from the same weights.
            contender.loaded = session.load(contender.kernel, contender.artifact, self._init_arguments(contender), seed)
        contender.compiled = True
        contender.entry = contender.loaded.entry
        contender.facts |= contender.loaded.facts

    def _init_arguments(self, contender: KernelRun) -> list[Any] | None:
        """The reference's own constructor arguments, for the candidate too."""
        reference = self.contenders[0]
        return reference.loaded.init if contender is not reference and reference.loaded is not None else None

    def _admit(self, size: int) -> None:
        """Raises KernelFault (OUT_OF_MEMORY) where this process cannot hold what it needs of one call's tensors."""
        if size > self.bench.call_memory:
            raise KernelFault(
                Status.OUT_OF_MEMORY,
                f"inputs and outputs of one call take {size >> 20} MiB; this worker allows "
                f"{self.bench.call_memory >> 20} MiB: make them smaller",
                compiled=True,
            )
