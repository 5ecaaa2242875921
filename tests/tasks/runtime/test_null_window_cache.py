"""The clocks of null windows that a worker keeps: for how long, of how many kinds, of whose windows."""

from __future__ import annotations

import pytest
import torch

from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, DeferredReadback
from tasks.runtime.null_window_cache import MAX_AGE_S, MOST_KINDS, MOST_USUAL, NullKind, NullWindowCache
from tests.own_worker import own_worker

CLOCKS = [Clock(0.16, 0.1), Clock(0.17, 0.1), Clock(0.16, 0.1)]


def layout(calls: int = 4, size: int = 8, outputs: int = 8) -> Slots:
    return Slots(calls, [torch.empty(size)], (), [torch.empty(outputs)], "cpu")


def kind(calls: int = 4) -> NullKind:
    return NullKind.of(layout(calls), gated=True)


def test_clocks_are_known_for_a_while() -> None:
    now = [100.0]
    known = NullWindowCache(lambda: now[0])
    known.store(kind(), CLOCKS)
    now[0] += MAX_AGE_S
    assert known.get(kind()) == CLOCKS
    now[0] += 1.0
    assert known.get(kind()) == []


def test_the_last_ones_count() -> None:
    now = [0.0]
    known = NullWindowCache(lambda: now[0])
    known.store(kind(), CLOCKS)
    now[0] = MAX_AGE_S
    known.store(kind(), CLOCKS[:1])
    now[0] += MAX_AGE_S
    assert known.get(kind()) == CLOCKS[:1]


@pytest.mark.parametrize(
    "other",
    [
        NullKind.of(layout(calls=5), gated=True),
        NullKind.of(layout(size=4096), gated=True),
        NullKind.of(layout(outputs=4096), gated=True),
        NullKind.of(layout(), gated=True, deferred_readback=DeferredReadback()),
        NullKind.of(layout(), gated=True, deferred_readback=DeferredReadback(in_inputs=True)),
        NullKind.of(layout(), gated=False),
    ],
    ids=["calls", "inputs", "answers", "held back", "in inputs", "streamed"],
)
def test_whatever_a_null_window_depends_on_is_another_kind(other: NullKind) -> None:
    known = NullWindowCache()
    known.store(kind(), CLOCKS)
    assert known.get(kind()) == CLOCKS and known.get(other) == []


def test_windows_without_the_gate_are_never_known() -> None:
    known = NullWindowCache()
    streamed = NullKind.of(layout(), gated=False)
    known.store(streamed, CLOCKS)
    assert known.get(streamed) == []


def test_no_more_kinds_are_kept_than_are_worth_it() -> None:
    known = NullWindowCache()
    for calls in range(1, MOST_KINDS + 1):
        known.store(kind(calls), CLOCKS)
    known.store(kind(1), CLOCKS)
    known.store(kind(MOST_KINDS + 1), CLOCKS)
    assert known.get(kind(1)) == CLOCKS and known.get(kind(2)) == []
    assert sum(bool(known.get(kind(calls))) for calls in range(1, MOST_KINDS + 2)) == MOST_KINDS


def test_what_is_usual_is_the_least_that_any_job_saw() -> None:
    known = NullWindowCache()
    assert known.usual_ms(kind()) is None
    for taken_ms in (0.3, 0.2, 2.4):
        known.note_usual(kind(), [Clock(taken_ms, 0.1)] * 2 + [Clock(9.0, 0.1)])
    assert known.usual_ms(kind()) == 0.2 and known.usual_ms(kind(5)) is None
    streamed = NullKind.of(layout(), gated=False)
    known.note_usual(streamed, CLOCKS)
    known.note_usual(kind(5), [])
    assert known.usual_ms(streamed) is None and known.usual_ms(kind(5)) is None


def test_what_is_usual_is_known_of_the_kinds_seen_last() -> None:
    known = NullWindowCache()
    for calls in range(1, MOST_USUAL + 1):
        known.note_usual(kind(calls), CLOCKS)
    known.note_usual(kind(1), CLOCKS)
    known.note_usual(kind(MOST_USUAL + 1), CLOCKS)
    assert known.usual_ms(kind(1)) == 0.16 and known.usual_ms(kind(2)) is None


def test_they_are_forgotten_with_the_null_runner_that_they_are_of() -> None:
    with own_worker() as worker:
        worker.null_window(layout(), gated=False)
        worker.null_window_cache.store(kind(), CLOCKS)
        worker.release_job_memory()
        assert worker.null_window_cache.get(kind()) == CLOCKS, "the same one goes on"
        worker._discard()
        assert worker.null_window_cache.get(kind()) == []
