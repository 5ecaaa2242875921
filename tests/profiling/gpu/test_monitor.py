"""The card's state: what is told where there is no card, and what samples add up to."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace

import pynvml
import pytest

from domain.paths import ROOT
from profiling.gpu.monitor import CardMonitor, CardProcess, CardSample, CardUnavailable, figure, reason_names
from profiling.gpu.state_summary import CardState, Span, card_state, throttled
from tasks.node.device_info import detect

QUIET = CardSample(
    sm_clock_mhz=1980,
    memory_clock_mhz=3201,
    max_sm_clock_mhz=1980,
    max_memory_clock_mhz=3201,
    reasons=(),
    lowered_ns={"sw_power_cap": 0, "hw_thermal_slowdown": 0, "sw_thermal_slowdown": 0},
    temperature_c=40,
    power_w=120.0,
    power_limit_w=700.0,
    memory_used_bytes=1 << 30,
    ecc_uncorrected=0,
)


def after(**changes: object) -> CardSample:
    return replace(QUIET, **changes)  # type: ignore[arg-type]


def test_without_a_card_it_says_so():
    answer = CardMonitor(None).sample()
    assert isinstance(answer, CardUnavailable) and "CPU" in answer.reason


@pytest.mark.skipif(detect().is_gpu, reason="NVML answers here")
def test_without_nvml_there_is_a_reason_and_no_exception():
    monitor = CardMonitor("GPU-none")
    for _ in range(2):
        answer = monitor.sample(thorough=True)
        assert isinstance(answer, CardUnavailable) and "NVML does not start" in answer.reason
    state = card_state([answer, answer])
    assert state.unavailable == answer.reason and state.samples == 0
    assert throttled(answer) is None
    json.dumps(asdict(state), allow_nan=False)


def test_a_figure_that_fails_is_missing_alone():
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    assert figure(refuse) is None
    assert figure(lambda: 7) == 7


def test_reasons_have_the_drivers_names_and_unknown_ones_a_number():
    assert reason_names(0) == ()
    assert reason_names(0x1 | 0x40) == ("gpu_idle", "hw_thermal_slowdown")
    assert reason_names(0x8000) == ("reason_0x8000",)


@pytest.mark.parametrize("reason", ["gpu_idle", "sw_power_cap", "applications_clocks_setting", "sync_boost"])
def test_a_card_that_does_its_best_spoils_no_window(reason):
    assert throttled(after(reasons=(reason,))) is None


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("hw_slowdown", "hardware slowed"),
        ("hw_thermal_slowdown", "too hot"),
        ("hw_power_brake_slowdown", "power brake"),
        ("sw_thermal_slowdown", "too hot"),
    ],
)
def test_a_slowed_card_spoils_the_window_and_the_reason_is_named(reason, words):
    told = throttled(after(reasons=(reason, "gpu_idle"), sm_clock_mhz=1200, temperature_c=91))
    assert told is not None and words in told and reason in told
    assert "1200 of 1980 MHz" in told and "91 °C" in told


def test_the_specific_reason_gives_the_words():
    told = throttled(after(reasons=("hw_slowdown", "hw_power_brake_slowdown")))
    assert told is not None and "power brake" in told and "hw_slowdown" in told


def test_a_sample_without_anything_spoils_nothing():
    empty = CardSample()
    assert throttled(empty) is None
    state = card_state([empty])
    assert state.unavailable is None and state.sm_clock_mhz is None and state.other_processes is None
    json.dumps(asdict(state), allow_nan=False)


def test_samples_add_up():
    state = card_state(
        [
            QUIET,
            CardUnavailable("for a moment"),
            after(lowered_ns={}, sm_clock_mhz=1755, reasons=("sw_power_cap",), power_w=690.0, temperature_c=61),
            after(lowered_ns={**QUIET.lowered_ns, "sw_power_cap": 2_500_000}, ecc_uncorrected=1, reasons=None),
        ]
    )
    assert state.samples == 3
    assert state.sm_clock_mhz == Span(1755, 1980) and state.temperature_c == Span(40, 61)
    assert state.power_w == Span(120.0, 690.0) and state.power_limit_w == 700.0
    assert state.throttle_reasons == ["sw_power_cap"] and state.throttled_ms == {"sw_power_cap": 2.5}
    assert state.new_ecc_errors == 1
    json.dumps(asdict(state), allow_nan=False)


def test_nothing_sampled_is_said():
    assert card_state([]) == CardState(unavailable="the card was never sampled")


def test_strangers_on_the_card_are_told_apart_from_us():
    ours, stranger = CardProcess(10, 1 << 20), CardProcess(99, None)
    assert card_state([after(processes=(ours,))], own={10, 11}).other_processes == []
    both = [QUIET, after(processes=(ours, stranger))]
    assert card_state(both, own={10}, others={99, 98}).other_processes == [stranger]
    assert card_state(both, own={10}).other_processes == [], "whose it is could not be found out"
    in_turn = [after(processes=(stranger,)), after(processes=(ours,))]
    assert card_state(in_turn, own={10}, others={99}).other_processes == [stranger]


def test_pids_of_another_namespace_accuse_nobody():
    assert card_state([after(processes=(CardProcess(99, 1),))], own={10}).other_processes is None
    assert card_state([after(processes=())], own={10}).other_processes is None


AFTER_A_FORK = """
import os
from profiling.gpu.monitor import CardMonitor
monitor = CardMonitor(0)
monitor.sample()
print(os.getpid() if os.fork() else "", type(monitor.sample()).__name__, flush=True)
"""


@pytest.mark.gpu
def test_the_card_answers_on_both_sides_of_a_fork():
    run = subprocess.run([sys.executable, "-c", AFTER_A_FORK], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.stdout.count("CardSample") == 2, run


@pytest.mark.gpu
def test_the_card_answers_quickly():
    import torch

    torch.ones(1, device="cuda")
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    monitor = CardMonitor(uuid)
    sample = monitor.sample(thorough=True)
    assert isinstance(sample, CardSample), sample
    assert sample.sm_clock_mhz and sample.max_sm_clock_mhz and sample.temperature_c and sample.power_w
    assert sample.reasons is not None and sample.memory_used_bytes
    samples, times_s = [], []
    for _ in range(20):
        started = time.perf_counter()
        samples.append(monitor.sample())
        times_s.append(time.perf_counter() - started)
    assert min(times_s) < 5e-3  # 0.02 ms on an H200; a busy host makes some samples longer, but not all.
    state = card_state([sample, *samples], own={os.getpid()})
    assert state.unavailable is None and state.samples == 21
    json.dumps(asdict(state), allow_nan=False)


@pytest.mark.gpu
def test_a_card_that_is_not_there_has_a_reason():
    for card in ("GPU-00000000-0000-0000-0000-000000000000", 99):
        answer = CardMonitor(card).sample()
        assert isinstance(answer, CardUnavailable) and "nvidia-smi -L" in answer.reason
