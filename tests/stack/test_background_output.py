"""A console that nobody reads, with real pipes: who writes to it goes on, and so does the whole service."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TextIO

import httpx
import pytest

from stack.background_output import MAX_WAITING, BackgroundOutput
from tests.chaos.load import RIGHT
from tests.stack.serving import READY_S, assert_nothing_left, serve, wait_for
from tests.stack.test_drain import ONE_AT_A_TIME, evaluate

MORE_THAN_A_PIPE = "x" * (1 << 20)


@pytest.fixture
def pipe() -> Iterator[tuple[BufferedReader, TextIO]]:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w") as writer:
        yield reader, writer


def test_texts_come_in_order_and_the_last_before_the_end(pipe: tuple[BufferedReader, TextIO]) -> None:
    reader, writer = pipe
    with BackgroundOutput(writer) as output:
        assert not output.isatty() and output.fileno() == writer.fileno()
        for number in range(1000):
            output.write(f"{number} \u2713\n")
    writer.close()
    assert reader.read().decode() == "".join(f"{number} \u2713\n" for number in range(1000))


def test_nobody_waits_for_a_reader_who_has_stopped_and_what_is_left_out_is_counted(
    pipe: tuple[BufferedReader, TextIO],
) -> None:
    reader, writer = pipe
    output = BackgroundOutput(writer)
    output.write(MORE_THAN_A_PIPE + "\n")
    for number in range(2 * MAX_WAITING):
        output.write(f"{number}\n")
    assert reader.readline() == MORE_THAN_A_PIPE.encode() + b"\n"
    lines = [reader.readline().decode() for _ in range(MAX_WAITING // 2)]
    output.write("read again\n")
    output.close()
    writer.close()
    *more, last = reader.read().decode().splitlines(keepends=True)
    assert last == "read again\n"
    # Two counts if the thread took its first text when some had been left out already.
    counts = [int(line[1:].split()[0]) for line in more if line.startswith("(")]
    numbers = [int(line) for line in [*lines, *more] if not line.startswith("(")]
    assert counts and numbers == sorted(numbers) and len(numbers) >= MAX_WAITING - 1
    assert len(numbers) + sum(counts) == 2 * MAX_WAITING


def test_a_reader_who_has_gone_is_no_error(pipe: tuple[BufferedReader, TextIO]) -> None:
    reader, writer = pipe
    with BackgroundOutput(writer) as output:
        reader.close()
        for _ in range(2 * MAX_WAITING):
            output.write("nobody reads it\n")


def test_a_program_without_a_standard_output_writes_nothing() -> None:
    with BackgroundOutput(None) as output:
        output.write("nowhere")


def test_the_service_goes_on_and_stops_although_nothing_reads_its_console(tmp_path: Path) -> None:
    with serve(tmp_path, piped=True, **ONE_AT_A_TIME) as serving:
        assert serving.process.stdout is not None
        fcntl.fcntl(serving.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        wait_for(serving.ready, READY_S, "it is ready")
        processes = serving.descendants()
        # Each job is a line of the API, whose own pipe to the stack has room for about 200.
        for _ in range(3):
            answer = httpx.post(f"{serving.url}/batch", json={"jobs": [evaluate(RIGHT)] * 200}, timeout=60)
            assert answer.status_code == 202, answer.text
        wait_for(lambda: (serving.logs / "api.log").read_text().count(": accepted") == 600, READY_S, "all are logged")
        serving.process.send_signal(signal.SIGTERM)
        assert_nothing_left(serving, processes)
        serving.process.stdout.close()
