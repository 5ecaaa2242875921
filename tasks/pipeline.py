"""A job from its request to its report: build, wait for the device, load, validate, time.

The referee's side of everything: it never runs a line of a submission. What a kernel does wrong becomes an outcome in
the report; what raises out of `run` is a cancellation or the service's own fault.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack

from domain.fault import KernelFault
from domain.job import Stage
from domain.request import Request
from domain.result import Report, Speedup, Status
from profiling.window import Range
from tasks.contender import Contender, Stopped
from tasks.environment import environment
from tasks.lease import device_lease
from tasks.rounds import Rounds
from tasks.timekeeper import Timekeeper
from tasks.trial_inputs import TrialInputs
from tasks.workbench import Workbench, deadline_in

PROBE_CALLS = 4
SECRET_BITS = 256
NO_DEVICE_METRICS = {
    "status": "unavailable",
    "reason": "this version does not collect device metrics; unset ENABLE_DEVICE_METRICS, and profile with ncu by hand",
}


def run(request: Request, bench: Workbench, progress: Callable[[Stage], None], cancelled: Callable[[], bool]) -> Report:
    """Evaluates or compares. Raises JobCancelled, InfrastructureFault, or whatever `progress` raises."""
    with ExitStack() as stack:
        folder = stack.enter_context(bench.job_folder())
        candidate = Contender("candidate", request.kernel, folder / "candidate")
        reference = None
        if request.reference is not None:
            reference = Contender("reference", request.reference, folder / "reference")
        job = _Job(request, bench, progress, cancelled, candidate, reference)
        try:
            job.build()
            progress(Stage.WAIT_FOR_DEVICE)
            with device_lease(_device_id(bench), cancelled):
                try:
                    job.judge()
                finally:
                    job.close()
                    bench.rest()
        except Stopped:
            pass
        finally:
            job.close()
        return job.report()


class _Job:
    """One run of the pipeline: its contenders, and what the stages hand on."""

    def __init__(
        self,
        request: Request,
        bench: Workbench,
        progress: Callable[[Stage], None],
        cancelled: Callable[[], bool],
        candidate: Contender,
        reference: Contender | None,
    ) -> None:
        self.request = request
        self.bench = bench
        self.progress = progress
        self.cancelled = cancelled
        self.candidate = candidate
        self.reference = reference
        self.contenders = [candidate] if reference is None else [reference, candidate]
        self.secret = secrets.randbits(SECRET_BITS)
        # A number of its own: a submission is told this one, and inputs must not follow from what it is told.
        self.weights_seed = secrets.randbits(31)
        self.inputs: TrialInputs | None = None
        self.weights: str | None = None
        self.speedup: Speedup | None = None
        self.device_s = 0.0

    def build(self) -> None:
        """Compiles every contender in a builder of its own, with no GPU visible, before the device is asked for."""
        self.progress(Stage.BUILD)
        deadline = deadline_in(self.request.timeout)
        failed: Stopped | None = None
        for contender in self.contenders:
            started = time.monotonic()
            contender.session = self.bench.session(deadline=deadline, cancelled=self.cancelled)
            try:
                with contender.answerable():
                    contender.artifact = contender.session.build(contender.kernel, contender.folder)
                    contender.compiled = contender.artifact.deferred is None
                    contender.facts |= contender.artifact.facts
                    contender.close()  # Before it is sealed: nothing may be left that writes into its folder.
                    contender.seal()
            except Stopped as stopped:
                failed = stopped
            finally:
                contender.close()
                contender.build_s = time.monotonic() - started
        if failed is not None:
            raise failed

    def judge(self) -> None:
        """Everything that needs the device, inside its lease and the request's time."""
        started = time.monotonic()
        deadline = deadline_in(self.request.timeout)
        try:
            self.progress(Stage.LOAD)
            for contender in self.contenders:
                self._load(contender, deadline)
            owner = self.contenders[0]
            self.inputs = TrialInputs(owner, self.candidate, self.bench.device.name, self.secret)
            self._share_weights()
            self.progress(Stage.VALIDATE)
            (example,) = self.inputs.draw(1)
            for contender in self.contenders:
                self._probe(contender, example[contender.role])
            rounds = Rounds(self.contenders, self.inputs, example, self.bench, self.request, deadline)
            rounds.validate()
            if rounds.right:
                self.progress(Stage.TIME)
                self.speedup = Timekeeper(rounds).time()
            rounds.look_at_precision()
        finally:
            self.device_s = time.monotonic() - started

    def report(self) -> Report:
        """What was found out, as far as the job came."""
        inputs = self.inputs.summary if self.inputs is not None else {}
        if self.weights is not None:
            inputs["weights"] = self.weights
        metrics = NO_DEVICE_METRICS if self.request.device_metrics else None
        where = {**environment(self.bench.target), "device_seconds": self.device_s}
        if self.reference is None:
            return Report(self.candidate.outcome(inputs), where, device_metrics=metrics)
        reference = self.reference.outcome(inputs)
        failed = reference if self.reference.fault is not None else None
        return Report(self.candidate.outcome(inputs, failed), where, reference, self.speedup, metrics)

    def close(self) -> None:
        """Ends every runner of the job."""
        for contender in self.contenders:
            contender.close()

    def _load(self, contender: Contender, deadline: float) -> None:
        if not contender.untouched:
            # Nothing runs at this time but what a builder may have left behind, or the other contender.
            message = f"files of the {contender.role} were changed from outside after its build"
            self.candidate.accuse(KernelFault(Status.CRASHED, message, compiled=self.candidate.compiled))
        session = self.bench.session(deadline=deadline, cancelled=self.cancelled)
        contender.session = session
        contender.range = Range(session, self.bench.device)
        init = self.reference.loaded.init if self.reference is not None and self.reference.loaded is not None else None
        with contender.answerable():
            # The same seed for both: two models with the same layers start from the same weights.
            contender.loaded = session.load(
                contender.kernel, contender.folder, contender.artifact, init, self.weights_seed
            )
        contender.compiled = True
        contender.entry = contender.loaded.entry
        contender.facts |= contender.loaded.facts

    def _share_weights(self) -> None:
        """The reference's weights into the candidate, by way of the referee: neither process reads the other."""
        if self.reference is None or self.reference.session is None or self.candidate.session is None:
            return
        with self.reference.answerable():
            state = self.reference.session.state()
        if not state:
            return
        with self.candidate.answerable():
            copied = self.candidate.session.load_state(state)
        self.weights = (
            "the reference's, copied into the candidate" if copied else "each its own, made under the same seed"
        )

    def _probe(self, contender: Contender, args: list[object]) -> None:
        if contender.session is None:
            raise ValueError(f"the {contender.role} has no runner")
        with contender.answerable():
            contender.probe = contender.session.probe(args, PROBE_CALLS)
            if self.reference is not None and not contender.probe.outputs:
                raise KernelFault(
                    Status.WRONG_RESULT,
                    f"the {contender.role} answered with no tensor and no number, so that there is nothing to compare: "
                    "return one, or give a contract (`io`) with an output argument",
                )


def _device_id(bench: Workbench) -> str:
    if not bench.target.is_cuda:
        return "cpu"
    import torch

    return str(torch.cuda.get_device_properties(bench.target.device).uuid)
