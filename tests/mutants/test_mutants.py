"""Every original is right and every mutant is wrong, by the pipeline that judges submissions."""

from __future__ import annotations

from typing import Any

import pytest

from domain.result import Status
from tasks.node.device_info import detect
from tasks.runtime.worker_context import WorkerContext
from tests.mutants.corpus import Mutant, Original, judged, originals

CORPUS = originals()
FEWEST_KERNELS, FEWEST_MUTANTS = 20, 5
QUICK = 2
"""Mutants of each kernel that `make test` judges; `make test-all` judges all."""

on_the_cpu = pytest.mark.skipif(detect().is_gpu, reason="here the worker is the card's: make test-gpu")


def kernels(device: str) -> list[Any]:
    return [pytest.param(original, id=name) for name, original in CORPUS.items() if runs_on(device, original)]


def mutants(device: str) -> list[Any]:
    return [
        pytest.param(original, mutant, id=f"{name}-{kind}", marks=marks(mutant, quick=device == "gpu" or place < QUICK))
        for name, original in CORPUS.items()
        if runs_on(device, original)
        for place, (kind, mutant) in enumerate(shown(device, original))
    ]


def shown(device: str, original: Original) -> list[tuple[str, Mutant]]:
    return [pair for pair in original.mutants.items() if device == "gpu" or not pair[1].gpu_only]


def runs_on(device: str, original: Original) -> bool:
    return device == "gpu" or not original.needs_gpu


def marks(mutant: Mutant, *, quick: bool) -> list[pytest.MarkDecorator]:
    chosen = [] if quick else [pytest.mark.slow]
    if mutant.missed is not None:
        chosen.append(pytest.mark.xfail(strict=True, reason=mutant.missed))
    return chosen


def check_original(worker: WorkerContext, original: Original) -> None:
    outcome = judged(worker, original.request())
    assert outcome.status is Status.PASSED, (outcome.status, outcome.message, outcome.log)


def check_mutant(worker: WorkerContext, original: Original, mutant: Mutant) -> None:
    outcome = judged(worker, original.request(mutant))
    assert mutant.is_caught(outcome), (mutant.bug, outcome.status, outcome.message, outcome.log)


def test_the_corpus_is_large_enough_and_every_replacement_applies_once() -> None:
    assert len(CORPUS) >= FEWEST_KERNELS
    for original in CORPUS.values():
        assert len(original.mutants) >= FEWEST_MUTANTS
        for mutant in original.mutants.values():
            original.mutated(mutant)


@on_the_cpu
@pytest.mark.parametrize("original", kernels("cpu"))
def test_an_original_is_right(worker: WorkerContext, original: Original) -> None:
    check_original(worker, original)


@on_the_cpu
@pytest.mark.parametrize(("original", "mutant"), mutants("cpu"))
def test_a_mutant_is_wrong(worker: WorkerContext, original: Original, mutant: Mutant) -> None:
    check_mutant(worker, original, mutant)


@pytest.mark.gpu
@pytest.mark.parametrize("original", kernels("gpu"))
def test_an_original_is_right_on_the_card(worker: WorkerContext, original: Original) -> None:
    check_original(worker, original)


@pytest.mark.gpu
@pytest.mark.parametrize(("original", "mutant"), mutants("gpu"))
def test_a_mutant_is_wrong_on_the_card(worker: WorkerContext, original: Original, mutant: Mutant) -> None:
    check_mutant(worker, original, mutant)
