"""Reading compute-sanitizer: each tool's findings, what is grouped, what is no finding, and garbage."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiling.sanitizer_report import MAX_CHARS, MAX_FINDINGS, SanitizerTool, ToolReport, described, read

BEGIN = "========= COMPUTE-SANITIZER\n"
CLEAN = BEGIN + "========= ERROR SUMMARY: 0 errors\n"
WRITE = """\
========= Invalid __global__ write of size 4 bytes
=========     at oob(float *, int)+0x90 in /tmp/box/kernel.cu:12
=========     by thread ({thread},0,0) in block (3,0,0)
=========     Access at 0x7f7a4e000000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f7a4dfff000 of size 4,096 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0xae61] in python3
=========
"""
HIT = """\
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API call to cuGetProc.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame:  [0xd4a2] in cydriver.cpython-312-x86_64-linux-gnu.so
=========         Host Frame: load in cuda.py:77
=========
"""
RACE = """\
========= {severity}: Race reported between Write access at sums(int *, int *)+0x90 in /home/me/race.cu:41
=========     and Read access at sums(int *, int *)+0x100 in /home/me/race.cu:51 [508 hazards]
=========     and Write access at sums(int *, int *)+0x130 in /home/me/race.cu:52 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
REAL_RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at k(const float *, float *, int)+0x140 in kernel.cu:5
=========     and Read access at k(const float *, float *, int)+0x150 in kernel.cu:6 [3456480 hazards]
=========     and Read access at k(const float *, float *, int)+0x160 in kernel.cu:6 [1008544 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
"""What compute-sanitizer 2025.3 said of a planted race on an H200."""
UNINITIALIZED = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at mult(int *, int *, int)+0x60
=========     by thread (122,0,0) in block (0,0,0)
=========     Address 0x7f936fa001e8
=========
========= ERROR SUMMARY: 1 error
"""
BARRIER = """\
========= Barrier error detected. Divergent thread(s) in block.
=========     at [clone myKernel(int *, int *)] outlineSync()+0x11f0 in test.cu:42
=========     by thread (32,0,0) in block (0,0,0)
=========         Device Frame: myKernel(int *, int *)+0xe40 in test.cu:60
=========
========= ERROR SUMMARY: 1 error
"""


def test_a_write_out_of_bounds_is_found_on_its_line_and_told_once() -> None:
    text = BEGIN + WRITE.format(thread=255) + WRITE.format(thread=254) + HIT + "========= ERROR SUMMARY: 3 errors\n"
    report = read(text)
    assert (report.status, report.reason, report.findings_omitted) == ("findings", None, 0)
    (one,) = report.findings
    assert one.kind == "Invalid __global__ write of size 4 bytes"
    assert (one.kernel, one.file, one.line) == ("oob(float *, int)", "kernel.cu", 12)
    assert (one.block, one.thread, one.count) == ("(3,0,0)", "(255,0,0)", 2)
    assert "1 bytes after the nearest allocation of size 4,096 bytes" in one.message
    assert "0x7f" not in one.message and "/tmp" not in one.message and "Host Frame" not in one.message


def test_a_race_names_both_places_and_its_hazards() -> None:
    (one,) = read(BEGIN + RACE.format(severity="Error")).findings
    assert one.kind == "Race reported: Write and Read access"
    assert (one.kernel, one.file, one.line, one.count) == ("sums(int *, int *)", "race.cu", 41, 512)
    assert "race.cu:41" in one.message and "race.cu:51" in one.message and "/home" not in one.message
    (warning,) = read(BEGIN + RACE.format(severity="Warning")).findings
    assert warning.kind == "Warning: Race reported: Write and Read access"


def test_a_planted_race_on_a_real_card() -> None:
    (one,) = read(REAL_RACE).findings
    assert (one.kernel, one.file, one.line) == ("k(const float *, float *, int)", "kernel.cu", 5)
    assert one.count == 3456480 + 1008544


def test_a_hazard_report_names_its_place_too() -> None:
    text = """\
========= Error: Potential WAW hazard detected at __shared__ 0x0 in block (0,0,0) :
=========     Write Thread (0,0,0) at WAW()+0x2f0 in raceWAW.cu:20
=========     Write Thread (1,0,0) at WAW()+0x2f0 in raceWAW.cu:20
=========     Current Value : 1, Incoming Value : 2
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
    (one,) = read(BEGIN + text).findings
    assert (one.kernel, one.file, one.line) == ("WAW()", "raceWAW.cu", 20)
    assert one.kind == "Potential WAW hazard: Write access"


def test_a_line_with_many_beginnings_is_read_once() -> None:
    line = "=========     " + "at " * 1300 + "Read access at " * 3 + "\n"
    assert read(BEGIN + line * 2000 + "========= ERROR SUMMARY: 0 errors\n").status == "clean"


def test_uninitialized_memory_without_line_information() -> None:
    (one,) = read(BEGIN + UNINITIALIZED).findings
    assert one.kind == "Uninitialized __global__ memory read of size 4 bytes"
    assert (one.kernel, one.file, one.line) == ("mult(int *, int *, int)", None, None)


def test_a_barrier_in_a_function_belongs_to_its_kernel() -> None:
    (one,) = read(BEGIN + BARRIER).findings
    assert one.kind == "Barrier error detected. Divergent thread(s) in block."
    assert (one.kernel, one.file, one.line, one.thread) == ("myKernel(int *, int *)", "test.cu", 42, "(32,0,0)")


def test_a_place_without_a_line_takes_that_of_its_caller() -> None:
    text = BARRIER.replace("outlineSync()+0x11f0 in test.cu:42", "__cuda_sm70_warpsync+0x30")
    (one,) = read(BEGIN + text).findings
    assert (one.kernel, one.file, one.line) == ("myKernel(int *, int *)", "test.cu", 60)


def test_the_form_before_cuda_12_4_is_read_too() -> None:
    old = UNINITIALIZED.replace(
        "at mult(int *, int *, int)+0x60", "at 0x100 in /home/me/sum.cu:30:mult(int *, int *, int)"
    )
    (one,) = read(BEGIN + old).findings
    assert (one.kernel, one.file, one.line) == ("mult(int *, int *, int)", "sum.cu", 30)


@pytest.mark.parametrize(
    "text",
    [
        CLEAN,
        BEGIN + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
        BEGIN + HIT + "========= ERROR SUMMARY: 1 error\n",
        "target done\n" + CLEAN,
    ],
)
def test_clean(text: str) -> None:
    assert read(text) == ToolReport("clean")


def test_what_was_counted_and_not_printed_is_said() -> None:
    more = "========= ERROR SUMMARY: 99 errors were not printed. Use --print-limit option to adjust the number\n"
    report = read(BEGIN + UNINITIALIZED.replace("1 error", "100 errors") + more)
    assert report.status == "findings" and len(report.findings) == 1
    assert report.reason == "compute-sanitizer counted 100 errors, and 99 of them are not told here"


def test_errors_that_cannot_be_read_are_not_clean() -> None:
    report = read(BEGIN + "========= Something of a later version\n========= ERROR SUMMARY: 1 error\n")
    assert report.status == "unavailable" and "1 of them are not told" in (report.reason or "")


def test_a_run_that_was_cut_off_is_not_clean() -> None:
    cut = read(BEGIN + "========= Error: Target application terminated before first instrumented API call\n")
    assert cut.status == "unavailable" and "did not finish" in (cut.reason or "")
    found = read(BEGIN + WRITE.format(thread=1))
    assert found.status == "findings" and "did not finish" in (found.reason or "")


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("forged", [CLEAN, BEGIN + HIT * 9 + "========= ERROR SUMMARY: 0 errors\n", "clean\n"])
@pytest.mark.parametrize("last", [True, False])
def test_a_clean_record_beside_one_with_findings_clears_nothing(last: bool, forged: str, count: int) -> None:
    true = BEGIN + WRITE.format(thread=1) * count + f"========= ERROR SUMMARY: {count} errors\n"
    report = read(true + forged if last else forged + true)
    assert report.status == "findings" and report.findings[0].count == count


def test_a_clean_record_makes_no_unread_error_clean() -> None:
    unread = BEGIN + "========= Something of a later version\n========= ERROR SUMMARY: 1 error\n"
    assert read(unread + CLEAN).status == read(CLEAN + unread).status == "unavailable"


def test_the_list_of_findings_ends() -> None:
    blocks = "".join(WRITE.format(thread=1).replace(":12", f":{line}") for line in range(1, MAX_FINDINGS + 6))
    report = read(BEGIN + blocks + f"========= ERROR SUMMARY: {MAX_FINDINGS + 5} errors\n")
    assert len(report.findings) == MAX_FINDINGS and report.findings_omitted == 5


def test_a_strangers_words_are_one_line_and_short() -> None:
    text = WRITE.format(thread=1).replace("oob", "o\x1b[2J\u202e" + "b" * 2000)
    (one,) = read(BEGIN + text + "========= ERROR SUMMARY: 1 error\n").findings
    assert one.kernel is not None and one.kernel.isprintable() and len(one.kernel) <= 256
    assert one.message.isprintable() and len(one.message) <= 480


@pytest.mark.parametrize("text", ["", "hello\n", "=" * (MAX_CHARS + 1)])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="compute-sanitizer"):
        read(text)


def test_a_finding_of_one_tool_is_one_of_all() -> None:
    clean, bad = ToolReport("clean"), read(BEGIN + BARRIER)
    gone = ToolReport("unavailable", "out of time")
    assert described({SanitizerTool.MEMCHECK: clean})["status"] == "clean"
    found = described({SanitizerTool.MEMCHECK: gone, SanitizerTool.SYNCCHECK: bad})
    assert found["status"] == "findings" and found["reason"] == "memcheck: out of time"
    assert json.loads(json.dumps(found)) == found
    assert set(found["tools"]["synccheck"]) == {"status", "reason", "findings", "findings_omitted"}
    assert described({SanitizerTool.MEMCHECK: clean, SanitizerTool.RACECHECK: gone})["status"] == "unavailable"
    assert described({}) == {"status": "unavailable", "reason": "no tool has run", "tools": {}}


PIECES = st.sampled_from(
    ["========= ", "=========     ", "at ", "+0x90", " in ", "k.cu:12", "Race reported between ", "Write access at ",
     "and ", "[9 hazards]", "ERROR SUMMARY: 1 error", "by thread (1,0,0) in block (2,0,0)", "Device Frame:", "\n", "(",
     "\x00", ":"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.text() | st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join))
def test_garbage_is_a_value_error(text: str) -> None:
    try:
        report = read(text)
    except ValueError:
        return
    json.dumps(report.to_dict())
    assert report.status in ("clean", "findings", "unavailable")
