"""Calls in which rounding alone decides the reference's answer, in an element or two of a million (docs/adr/0044)."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace

import torch

from domain import value as values
from domain.fault import KernelFault
from domain.kernel import KernelType
from profiling.window.call_buffers import Slots
from tasks.correctness.input_batches import Arguments
from tasks.runtime.freeze import frozen_others
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext
from validation.compare.result import CallComparison
from validation.compare.rounding_boundary import Outputs, few_are_wrong, given_by_reference
from validation.compare.ties import tied
from validation.compare.tolerance import Tolerance
from validation.evidence.perturbation_bound import MOST_ELEMENTS, step
from validation.inputs.distributions import moved
from validation.inputs.value_traits import Nature, nature
from validation.seeds import derived

TURNS = tuple((sign * turn, times) for turn, times in enumerate((1, 1, 1, 1, 2, 2), start=1) for sign in (1, -1))
"""As many as are needed, the last ones by twice as much, which is less than the tolerance still: of calls in which a
TF32 product meets a threshold three excuse 41 of 52, six 51."""
MOST_CALLS, BUDGET_S = 1000, 15.0
"""Of a job. Each call costs a few of the reference in float64; where that takes longer, the answer stays wrong."""
CALL_S = 5.0
SAID = (
    "{elements} of the elements compared, in {calls} calls, are not the reference's, which gives them itself for "
    "inputs that differ by rounding: right, as nothing but rounding decides there"
)


class Edges:
    """Of a comparison with a reference of torch, which can be run in float64."""

    def __init__(self, reference: KernelRun, candidate: KernelRun, bench: WorkerContext, tolerance: Tolerance) -> None:
        self._reference = reference
        self._candidate = candidate
        self._bench = bench
        self._tolerance = tolerance
        self._elements = 0
        self._calls = 0
        self._left_s = BUDGET_S
        self.failed = False

    @property
    def said(self) -> str | None:
        """What the reader is told of them."""
        return SAID.format(elements=self._elements, calls=self._calls) if self._calls else None

    def without(
        self, found: list[CallComparison], slots: Slots, expected: Outputs, actual: Outputs, deadline: float
    ) -> list[CallComparison]:
        """What was found, with calls right whose wrong elements the reference gives itself; `slots` are its own.

        `expected` and `actual` are of all calls, [calls, *shape]. None is excused where one is that cannot be.
        """
        wrong = [call for call, one in enumerate(found) if not one.passed]
        if not wrong or self._calls + len(wrong) > MOST_CALLS or any(found[call].fault is not None for call in wrong):
            return found
        for call in wrong:
            ours, theirs = ([stack[call] for stack in stacks] for stacks in (expected, actual))
            # Of equal values a reference may name a certain one on purpose, which inputs that differ cannot show.
            if sum(tensor.numel() for tensor in ours) > MOST_ELEMENTS or tied(ours, theirs):
                return found
            if not few_are_wrong(ours, theirs, self._tolerance):
                return found
            runs = self._runs(slots.arguments(call), deadline)
            with closing(runs):
                if not given_by_reference(ours, theirs, runs, self._tolerance):
                    return found
        self._calls += len(wrong)
        self._elements += sum(found[call].mismatch_count for call in wrong)
        right = {call: replace(found[call], mismatch_count=0, nonfinite_count=0, first_mismatch=None) for call in wrong}
        return [right.get(call, one) for call, one in enumerate(found)]

    def _runs(self, arguments: Arguments, deadline: float) -> Generator[Outputs, None, None]:
        """The call in float64, then with everything continuous moved by as much as rounding does; none if it fails."""
        session = self._reference.session
        if session is None or self.failed or self._reference.kernel.kernel_type is not KernelType.TORCH:
            return
        if self._left_s <= 0:
            return
        by, began = step(self._tolerance, arguments), time.monotonic()
        kinds = [nature(tensor) for tensor in values.leaves(arguments, torch.Tensor)]
        try:
            with frozen_others([self._candidate], self._bench.device):
                for turn, times in ((0, 0), *TURNS):
                    if time.monotonic() - began > self._left_s:
                        return
                    session.until(min(deadline, time.monotonic() + CALL_S))
                    outputs = session.double(_moved(arguments, kinds, turn, times * by) if turn else arguments)
                    if outputs is None:
                        return
                    yield outputs
        except KernelFault:
            self.failed = True  # Whoever is asked nothing more is not to blame for what he is then asked.
        finally:
            self._left_s -= time.monotonic() - began
            session.until(deadline)


def _moved(arguments: Arguments, kinds: list[Nature], turn: int, by: float) -> Arguments:
    places = iter(enumerate(kinds))

    def move(tensor: torch.Tensor) -> torch.Tensor:
        place, kind = next(places)
        if not kind.continuous:
            return tensor
        seed = derived(0, "edge", abs(turn), place)
        # Of plain numbers zeros too: a normal is 0.0 once in some ten million, where `>` and `>=` part by luck.
        return moved(tensor.double(), by if turn > 0 else -by, seed, zeros=kind is Nature.PLAIN)

    told: Arguments = values.replace(arguments, torch.Tensor, move)
    return told
