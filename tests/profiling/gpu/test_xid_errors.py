"""What the driver reports of a card: read without a wait, told apart by whose fault it is, or not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from profiling.gpu import xid_errors
from profiling.gpu.monitor import CardUnavailable
from profiling.gpu.xid_errors import CARD, NOTED, USER, CardError, CardErrors
from tasks.node.device_info import detect


def test_an_address_is_the_kernels_and_a_card_off_the_bus_is_the_cards() -> None:
    assert not CardError(31).is_hardware_fault and "illegal address" in CardError(31).meaning
    assert CardError(79).is_hardware_fault and "bus" in CardError(79).meaning
    assert not CardError(999).is_hardware_fault and "not known" in CardError(999).meaning
    assert not CardError(63).is_hardware_fault and "corrected" in CardError(63).meaning
    assert not USER.keys() & CARD.keys() and not (USER | CARD).keys() & NOTED.keys()
    assert CardError(48).summary() == {"xid": 48, "meaning": CARD[48], "is_hardware_fault": True}


def test_without_a_card_it_says_so() -> None:
    errors = CardErrors(None)
    errors.discard_pending()
    assert isinstance(answer := errors.take_new(), CardUnavailable) and "CPU" in answer.reason


@pytest.mark.skipif(detect().is_gpu, reason="NVML answers here")
def test_without_nvml_there_is_a_reason_and_no_exception() -> None:
    assert isinstance(answer := CardErrors("GPU-none").take_new(0.1), CardUnavailable)
    assert "does not tell" in answer.reason


class Driver:
    """NVML's events for a machine that has none: `reported` come one by one, then a timeout or what `fails`."""

    def __init__(self) -> None:
        self.reported: list[int] = []
        self.waits: list[int] = []
        self.fails: int = pynvml.NVML_ERROR_TIMEOUT

    def wait(self, events: Any, timeout_ms: int) -> Any:
        self.waits.append(timeout_ms)
        if self.reported:
            return SimpleNamespace(eventData=self.reported.pop(0))
        raise pynvml.NVMLError(self.fails)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(xid_errors, "_listen", lambda card: object())
    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", made.wait)
    return made


def test_reports_are_handed_out_once_and_those_before_the_job_are_forgotten(driver: Driver) -> None:
    errors = CardErrors("GPU-x")
    driver.reported = [45]
    errors.discard_pending()
    driver.reported = [31, 79]
    assert errors.take_new(0.1) == [CardError(31), CardError(79)]
    assert errors.take_new() == []
    assert driver.waits == [0, 0, 100, 0, 0, 0], "only the first report is waited for"


def test_a_driver_that_is_gone_is_said(driver: Driver) -> None:
    errors = CardErrors("GPU-x")
    driver.fails = pynvml.NVML_ERROR_GPU_IS_LOST
    assert isinstance(answer := errors.take_new(), CardUnavailable) and "no longer" in answer.reason
    driver.reported = [79]
    assert errors.take_new() == [CardError(79)]


@pytest.mark.gpu
def test_the_driver_of_a_real_card_is_listened_to() -> None:
    assert CardErrors(detect().name).take_new() == []
