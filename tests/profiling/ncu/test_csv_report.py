"""Reading ncu's raw page: what a real one says, magnitudes and gaps; and what is no such page."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiling.ncu.csv_report import MAX_CHARS, MAX_COLUMNS, MAX_LAUNCHES, NAME_CHARS, base_unit, read

SAMPLE = (Path(__file__).parents[1] / "samples" / "ncu-h200.csv").read_text(encoding="utf-8")
HEADER = '"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum","smsp__inst_executed.sum"'
UNITS = '"","","","","us","inst"'
ROW = '"0","copy","(256, 1, 1)","(8, 2, 1)","1.5","2,210,016"'


def _printed(*rows: str, header: str = HEADER, units: str = UNITS) -> str:
    return "\n".join((header, units, *rows)) + "\n"


def test_a_real_report_has_its_launches_in_order() -> None:
    launches = read(SAMPLE)
    assert [launch.kernel[:8] for launch in launches[:8]] == [
        "copy", "strided", "banks", "lowsmem", "divergen", "spilling", "lowregs", "tiny",
    ]  # fmt: skip
    assert launches[8].grid == (2, 66, 1) and launches[8].block == (384, 1, 1)
    copy = launches[0].values
    assert copy["gpu__time_duration.sum"] == pytest.approx(131.04e-6)
    assert copy["dram__bytes_read.sum"] == pytest.approx(0.268449e9)
    assert copy["dram__bytes.sum.per_second"] == pytest.approx(3.931089e12)
    assert launches[0].units["dram__bytes.sum.per_second"] == "byte/s"
    assert launches[3].values["launch__shared_mem_per_block_dynamic"] == pytest.approx(204_800)


def test_words_and_gaps_are_no_figures() -> None:
    values = read(SAMPLE)[0].values
    assert "sass__inst_executed_register_spilling_mem_local" not in values, "ncu says `no data`"
    assert "launch__cluster_scheduling_policy" not in values
    row = '"0","copy","(1, 1, 1)","(1, 1, 1)","","nan"'
    assert read(_printed(row))[0].values == {}


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("2,210,016", 2210016.0),
        ("-0.004429", -0.004429),
        ("1e3", 1000.0),
        ("12,34", None),
        ("1e999", None),
        ("٣", None),
    ],
)
def test_numbers(cell: str, number: float | None) -> None:
    row = f'"0","copy","(1, 1, 1)","(1, 1, 1)","1","{cell}"'
    assert read(_printed(row))[0].values.get("smsp__inst_executed.sum") == number


@pytest.mark.parametrize(
    ("unit", "base", "scale"),
    [
        ("Gbyte/s", "byte/s", 1e9), ("Kbyte/block", "byte/block", 1e3), ("ms", "s", 1e-3), ("nsecond", "s", 1e-9),
        ("sector/us", "sector/s", 1e6), ("Ghz", "hz", 1e9), ("%", "%", 1.0), ("", "", 1.0), ("warp", "warp", 1.0),
        ("Tbyte", "byte", 1e12), ("byte", "byte", 1.0), ("Mystery", "Mystery", 1.0),
    ],
)  # fmt: skip
def test_units_come_down_to_base_units(unit: str, base: str, scale: float) -> None:
    assert base_unit(unit) == (base, pytest.approx(scale))


def test_lines_of_ncu_itself_are_passed_over() -> None:
    launches = read("==PROF== Connected to process 7\n\n" + _printed(ROW) + "==PROF== Disconnected\n")
    assert len(launches) == 1
    assert launches[0].values == pytest.approx({"gpu__time_duration.sum": 1.5e-6, "smsp__inst_executed.sum": 2210016})
    assert (launches[0].grid, launches[0].block) == ((8, 2, 1), (256, 1, 1))


def test_a_name_is_cut_and_has_no_control_characters() -> None:
    row = '"0","a\x1b[31m\u202eb' + "c" * 2 * NAME_CHARS + '","(1, 1, 1)","(1, 1, 1)","1","1"'
    name = read(_printed(row))[0].kernel
    assert len(name) == NAME_CHARS and name.isprintable()


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("", "no table of counters"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "ncu says: ERR_NVGPUCTRPERM"),
        ("==PROF== No kernels were profiled.\n", "ncu says: No kernels were profiled"),
        (HEADER + "\n", "no row of units"),
        (_printed(), "no launch"),
        ("hello\n" + _printed(ROW), "begins with 'hello'"),
        (_printed(ROW, units='"","us"'), "no row of units"),
        (_printed('"0","copy"'), "a row of 2 counters under 6 names"),
        (_printed('"0","copy","256","(1, 1, 1)","1","1"'), "no dimensions"),
        (_printed(ROW, header=HEADER.replace("Grid Size", "Griddle")), "no column 'Grid Size'"),
        (_printed('"0","copy'), "not a table"),
        (_printed(*[ROW] * (MAX_LAUNCHES + 1)), "more than 256 launches"),
        (",".join(['"ID"', *['"x"'] * MAX_COLUMNS]) + "\n", "columns"),
        ("x" * (MAX_CHARS + 1), "characters"),
    ],
)
def test_what_is_no_report_says_why(printed: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(printed)


@settings(max_examples=150, deadline=None)
@given(st.text() | st.text(alphabet='",=(1 )\n\r\x00ID').map(lambda text: _printed(ROW, text)))
def test_garbage_is_a_value_error(printed: str) -> None:
    try:
        launches = read(printed)
    except ValueError:
        return
    assert launches


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(SAMPLE)), st.integers(0, 200), st.text(max_size=20))
def test_a_damaged_report_is_read_or_refused(at: int, cut: int, put: str) -> None:
    try:
        launches = read(SAMPLE[:at] + put + SAMPLE[at + cut :])
    except ValueError:
        return
    assert 1 <= len(launches) <= MAX_LAUNCHES
