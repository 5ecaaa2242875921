"""What ncu is asked for: names that a real H200 has answered to."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.device_metrics import Level
from profiling.ncu.csv_report import read
from profiling.ncu.metrics import BASIC, LAUNCHES, arguments, refused

SAMPLE = (Path(__file__).parents[1] / "samples" / "ncu-h200.csv").read_text(encoding="utf-8")


def _metrics(given: list[str]) -> list[str]:
    return given[given.index("--metrics") + 1].split(",") if "--metrics" in given else []


def test_every_basic_metric_is_one_that_the_card_counts() -> None:
    counted = {name for launch in read(SAMPLE) for name in launch.values}
    assert [name for name in BASIC if name not in counted] == []
    assert len(set(BASIC)) == len(BASIC)
    assert not any(name.startswith("derived__") for name in BASIC), "ncu refuses to be asked for these"


@pytest.mark.parametrize("level", Level)
def test_clocks_are_left_alone_and_launches_are_bounded(level: Level) -> None:
    given = arguments(level)
    assert given[given.index("--clock-control") + 1] == "none"
    assert given[given.index("--cache-control") + 1] == "all"
    assert given[given.index("--kill") + 1] == "no"
    assert given[given.index("--launch-count") + 1] == str(LAUNCHES[level])


def test_basic_names_its_metrics_and_full_takes_the_set() -> None:
    assert _metrics(arguments(Level.BASIC)) == list(BASIC)
    assert "--set" not in arguments(Level.BASIC)
    full = arguments(Level.FULL)
    assert full[:2] == ["--set", "full"]
    assert _metrics(full) == []


def test_asked_metrics_come_besides_and_once() -> None:
    assert _metrics(arguments(Level.FULL, ["lts__t_bytes.sum", "lts__t_bytes.sum"])) == ["lts__t_bytes.sum"]
    asked = _metrics(arguments(Level.BASIC, ["lts__t_bytes.sum", BASIC[0]]))
    assert asked == [*BASIC, "lts__t_bytes.sum"]


def test_what_the_card_lacks_is_left_out_of_the_next_run() -> None:
    said = (
        "==PROF== Connected to process 7 (/usr/bin/python3)\n"
        "==ERROR== Failed to access the following 2 metrics: no__one.sum, sm__ops_path_tensor_src_fp8_sparsity_on.sum\n"
    )
    lacking = refused(said)
    assert lacking == ("no__one.sum", "sm__ops_path_tensor_src_fp8_sparsity_on.sum")
    left = _metrics(arguments(Level.BASIC, ["no__one.sum"], without=lacking))
    assert len(left) == len(BASIC) - 1 and not set(lacking) & set(left)
    assert refused("==ERROR== Failed to find metric memory_x.\n") == ("memory_x",)
    assert refused("==PROF== Disconnected\n==ERROR== The application returned an error code (1).\n") == ()
