"""What a body costs: no more time or memory than its size says, whatever is in it, and an answer of bounded size."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from flask.testing import FlaskClient

from api.http import body_memory, json_body
from api.http.body_memory import BODIES
from api.http.limits import BODY_MEMORY, SMALL_BODY
from api.http.problems import MOST_ERRORS
from api.http.strict_json import BodyError, cost, parse
from api.routes.submissions import BATCH_ERRORS
from tasks.jobs.job_store import JobStore
from tests.api.payloads import CUDA_ADD, RELU, TRITON_ADD, kernel, tensor

MIB = 1 << 20


def keys(count: int) -> bytes:
    return b",".join(b'"k%d":1' % each for each in range(count))


SHAPES: dict[str, Callable[[int], bytes]] = {
    "a key that comes again last": lambda n: b'{"a":{%s,"k%d":1}}' % (keys(n), n - 1),
    "many objects with one": lambda n: b'{"a":[%s1]}' % (b'{"a":1,"a":1},' * n),
    "a deep list": lambda n: b'{"a":' * 60 + b"[" + b"1," * n + b"1]" + b"}" * 60,
    "a deep object": lambda n: b'{"a":' * 60 + b"{" + keys(n) + b"}" + b"}" * 60,
    "brackets": lambda n: b"[]" * n,
    "ends of arrays": lambda n: b"]" * 8 * n,
    "quotes": lambda n: b'"' * 8 * n,
    "backslashes": lambda n: b'{"a":"' + b"\\" * 8 * n,
    "long integers": lambda n: b'{"a":[%s]}' % b",".join([b"9" * 4300] * (n // 1000)),
    "one integer": lambda n: b'{"a":' + b"9" * 8 * n + b"}",
    "one fraction": lambda n: b'{"a":0.' + b"9" * 8 * n + b"}",
    "one power": lambda n: b'{"a":' + b"9" * 8 * n + b"e-999}",
    "lines": lambda n: b'{"a":' + b"\n" * 8 * n + b"x",
    "wide texts": lambda n: b'{"a":["%s"]}' % b'","'.join(["\U0001f600x".encode()] * n),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_the_time_of_a_parse_grows_with_the_size(shape: Callable[[int], bytes]) -> None:
    def took(count: int) -> float:
        """Of the processor: others may have the machine."""
        raw, best = shape(count), float("inf")
        for _ in range(3):
            began = time.thread_time()
            with suppress(BodyError):
                parse(raw)
            best = min(best, time.thread_time() - began)
        return best

    few, many = took(10_000), took(80_000)
    assert many < 30 * max(few, 0.002), (few, many)
    assert many < 1.0, "for less than a MiB"


def test_a_repeated_key_among_a_hundred_thousand(client: FlaskClient) -> None:
    raw = SHAPES["a key that comes again last"](100_000)
    began = time.thread_time()
    answer = client.post("/evaluate", data=raw, content_type="application/json")
    assert time.thread_time() - began < 2
    assert answer.status_code == 400
    assert answer.get_json()["detail"] == "a -> k99999: is given more than once in this object; keep one"


def test_a_source_that_is_too_long_is_refused_however_it_is_written(client: FlaskClient) -> None:
    wide = '{"kernel":{"source_code":"\U0001f600'.encode() + b"a" * (16 * MIB) + b'","kernel_type":"torch"}}'
    escaped = wide.replace("\U0001f600".encode(), b"\\ud83d\\ude00")
    for raw in (wide, escaped):
        answer = client.post("/evaluate", data=raw, content_type="application/json")
        assert answer.status_code == 400 and "1048576" in answer.get_json()["detail"]


@pytest.mark.parametrize("more", [b"", "\U0001f600".encode(), b"\\u20ac", b"\\/\\n\\u002b"])
def test_a_parse_takes_no_more_than_was_asked_for(more: bytes) -> None:
    text = b"A" * (5 * MIB) + more
    raw = b'{"a":["%s","%s","%s"],"b":[%s1]}' % (text, text, text, b"{}," * 10_000)
    tracemalloc.start()
    try:
        value = parse(raw)
        peak = tracemalloc.get_traced_memory()[1] + len(raw)
    finally:
        tracemalloc.stop()
    assert value["a"][0].startswith("AAA")
    assert peak <= cost(raw), (peak, cost(raw))


def test_base64_of_any_length_is_taken_in_one_piece(client: FlaskClient, records: JobStore) -> None:
    data = {"data_b64": "A" * (8 * MIB) + "\n", "dtype": "uint8", "shape": [6 * MIB]}
    code = kernel(CUDA_ADD, "cuda", [{"name": "x", "type": "tensor", "tensor_spec": {"data": data}}], grid=1, block=1)
    assert client.post("/evaluate", json={"kernel": code}).status_code == 202
    raw = json.dumps({"kernel": code}).replace("AAAA", "\\u0041AAA", 1).encode()
    assert client.post("/evaluate", data=raw, content_type="application/json").status_code == 202


WRONG: list[tuple[str, Any, str]] = [
    ("/jobs/cancel", {"job_ids": [0] * 100_000}, "job_ids: has 100000 entries; 1 to 1000 jobs"),
    ("/batch", {"jobs": [0] * 100_000}, "jobs: has 100000 entries; a batch has 1 to 1000"),
    ("/evaluate", {"kernel": {**kernel(CUDA_ADD, "cuda"), "io": {"args": [0] * 100_000}}}, "more than 256 arguments"),
    ("/evaluate", {"kernel": kernel(RELU, "torch", [tensor("x", [-1] * 100_000)])}, "more than 32 dimensions"),
    ("/evaluate", {"kernel": {**kernel(RELU, "torch"), **dict.fromkeys(map(str, range(100_000)))}}, "100002 keys"),
    ("/evaluate", {"kernel": kernel(RELU, "torch"), "artifacts": [0] * 100_000}, "artifacts: has at most 5 entries"),
    ("/evaluate", {"kernel": {**kernel(RELU, "torch"), "x" * MIB: 1}}, "x…: is not a field"),
]


@pytest.mark.parametrize(("path", "sent", "told"), WRONG, ids=[told for _, _, told in WRONG])
def test_what_is_too_long_is_told_in_short(client: FlaskClient, path: str, sent: Any, told: str) -> None:
    began = time.thread_time()
    answer = client.post(path, json=sent)
    assert answer.status_code == 400 and told in answer.get_json()["detail"]
    assert len(answer.data) < 4096
    assert time.thread_time() - began < 2


def test_no_more_than_a_hundred_errors_are_told(client: FlaskClient) -> None:
    args = [{"name": 1, "type": "x", "role": "y"} for _ in range(200)]
    answer = client.post("/evaluate", json={"kernel": kernel(CUDA_ADD, "cuda", args)}).get_json()
    assert len(answer["errors"]) == len(answer["validation_errors"]) == MOST_ERRORS
    assert answer["errors_omitted"] == 600 - MOST_ERRORS
    assert answer["detail"].endswith("; and 595 more")
    entries = client.post("/batch", json={"jobs": [{"kernel": kernel(CUDA_ADD, "cuda", args)}] * 20}).get_json()["jobs"]
    told = [len(entry["problem"]["errors"]) for entry in entries]
    assert told == [MOST_ERRORS] * (BATCH_ERRORS // MOST_ERRORS) + [1] * 10


def test_a_source_is_looked_through_once_for_all_names_of_its_launch(client: FlaskClient) -> None:
    names = [f"N{index:02}" for index in range(60)]
    source = TRITON_ADD + "\n#" + "\n# ".join(names) + "\n#" + "ab " * 300_000
    grid = ["+".join(names[at : at + 20]) for at in (0, 20, 40)]
    began = time.thread_time()
    answer = client.post("/evaluate", json={"kernel": kernel(source, "triton", [tensor("x", [4])], grid=grid)})
    assert answer.status_code == 202, answer.get_json()
    assert time.thread_time() - began < 1


def test_strange_names_in_a_batch_are_compared_in_time(client: FlaskClient) -> None:
    strange = {f"num_trial{index:02}": 1 for index in range(16)}
    began = time.thread_time()
    answer = client.post("/batch", json={"jobs": [{"kernel": kernel(RELU, "torch"), **strange}] * 1000})
    entries = answer.get_json()["jobs"]
    assert answer.status_code == 202 and len(entries[999]["ignored"]) == 16
    assert (
        entries[99]["ignored"][0] == "num_trial00 (did you mean num_trials?)"
        and entries[100]["ignored"][0] == "num_trial00"
    )
    assert time.thread_time() - began < 5


@pytest.fixture
def full() -> Iterator[None]:
    """All but two MiB of what bodies may take is taken."""
    BODIES.take_slot(0)
    assert BODIES.take(BODY_MEMORY - 2 * MIB)
    yield
    BODIES.take_slot(0)


def test_large_bodies_are_refused_for_a_while_where_there_is_no_memory(client: FlaskClient, full: None) -> None:
    before = body_memory.reserved_bytes()
    for size in (MIB, 3 * MIB):  # Read, and then too much for the parse; not even read to its end.
        answer = client.post("/evaluate", json={"kernel": kernel(RELU + " " * size, "torch")})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert answer.get_json()["type"] == "urn:kernel-eval:problem:bodies-full"
    assert client.post("/evaluate", json={"kernel": kernel(RELU, "torch")}).status_code == 202
    assert body_memory.reserved_bytes() == before


def test_what_a_body_took_is_given_back(client: FlaskClient) -> None:
    BODIES.take_slot(0)
    code = kernel(RELU + " " * (MIB // 2), "torch")
    for sent, status in (
        ({"kernel": code}, 202),
        ({"kernel": code, "timeout": 1}, 400),
        ({"kernel": 1, "x": code}, 400),
    ):
        assert client.post("/evaluate", json=sent).status_code == status
        assert body_memory.reserved_bytes() == 0
    client.post("/batch", json={"jobs": [{"kernel": code}] * 4})
    assert body_memory.reserved_bytes() == 0


def test_who_waits_holds_no_body(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    real = json_body.release

    def release(sent: dict[str, Any]) -> None:
        held.append(body_memory.reserved_bytes())
        real(sent)
        held.append(body_memory.reserved_bytes())
        assert sent == {}

    monkeypatch.setattr("api.routes.submissions.release", release)
    BODIES.take_slot(0)
    code = kernel(RELU + " " * (MIB // 2), "torch")
    assert client.post("/evaluate", json={"kernel": code}).status_code == 202
    assert client.post("/batch", json={"jobs": [{"kernel": code}]}).status_code == 202
    assert held[0] > SMALL_BODY and held[2] > SMALL_BODY and held[1] == held[3] == 0


def test_another_process_has_what_one_that_died_had() -> None:
    BODIES.take_slot(7)
    try:
        assert BODIES.take(MIB) and body_memory.reserved_bytes() == MIB
        body_memory.clear(7)
        assert body_memory.reserved_bytes() == 0
    finally:
        BODIES.take_slot(0)
