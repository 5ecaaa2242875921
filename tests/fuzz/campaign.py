"""Requests that nobody would write, at a running service: each is answered, soon, and not by a 5xx."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from requests.exceptions import InvalidHeader, InvalidURL
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from domain.job import State
from tests.chaos.service import Service
from tests.fuzz.contracts import bodies

ANSWER_S = 20.0
"""An answer that takes longer is a hang. The machine may be busy judging what was accepted."""

WAIT_S = 0.01
"""No answer is held longer, whatever the case asks for: that would be its good right."""

JUDGED_S = 60.0
BAD_WORDS = ("Traceback", "CRITICAL", "ERROR", "unhandled")
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
OF_HTTP = (414, 431)
"""gunicorn's own, before there is a request: too long a line, too large headers."""

SHARE = 0.5
"""Of all requests that come out of the OpenAPI document; the others have contracts."""


@dataclass
class Tally:
    """What was answered; `jobs` is what became of those that were accepted and judged, by verdict or state."""

    answers: Counter[int] = field(default_factory=Counter)
    by_operation: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    log_lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.answers.total()} requests, the slowest answered after {self.slowest_s:.2f} s",
            "answers: " + ", ".join(f"{count} x {status}" for status, count in sorted(self.answers.items())),
            "operations: " + ", ".join(f"{count} x {name}" for name, count in sorted(self.by_operation.items())),
            "jobs: " + ", ".join(f"{count} {end}" for end, count in sorted(self.jobs.items())),
        ]
        return "\n".join([*lines, *self.log_lines[:20]])


class Fuzz:
    """A number of requests at one service; raises AssertionError at the first that is not answered as it should be."""

    def __init__(self, made: Service, *, number: int, seed: int, judged: int) -> None:
        """`judged` of the accepted jobs are waited for; the others are cancelled."""
        self._made = made
        self._number = number
        self._seed = seed
        self._judged = judged
        self._session = requests.Session()
        self.tally = Tally()

    def run(self) -> Tally:
        document = schemathesis.openapi.from_url(f"{self._made.url}/openapi.json")
        operations = [found.ok() for found in document.get_all_operations()]
        each = max(1, round(self._number * SHARE / len(operations) / len(MODES)))
        for operation in operations:
            for mode in MODES:
                self._try(operation.as_strategy(generation_mode=mode), each, self._call)
        self._try(bodies(), max(1, self._number - self.tally.answers.total()), self._post)
        self._judge()
        self.tally.log_lines = [
            line
            for name in [*self._made.processes]
            if name != "redis"
            for line in self._made.log(name).splitlines()
            if any(word in line for word in BAD_WORDS)
        ]
        return self.tally

    def _try(self, strategy: st.SearchStrategy[Any], number: int, ask: Any) -> None:
        quiet = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

        @seed(self._seed)
        @settings(max_examples=number, phases=[Phase.generate], **quiet)
        @given(case=strategy)
        def all_of_them(case: Any) -> None:
            ask(case)

        with suppress(Unsatisfiable):  # An operation that nothing can be wrong about.
            all_of_them()

    def _call(self, case: Any) -> None:
        query = case.query if isinstance(case.query, dict) else {}
        if _seconds(query.get("wait")) > WAIT_S:
            query["wait"] = WAIT_S
        case.headers.pop("Prefer", None)
        try:
            response = case.call(base_url=self._made.url, session=self._session, timeout=ANSWER_S)
        except (InvalidHeader, InvalidURL, UnicodeError, ValueError):
            return  # Not to be sent by this client at all.
        self._note(f"{case.method} {case.path}", response.status_code, response.elapsed)
        if response.status_code not in OF_HTTP:
            case.validate_response(response, checks=CHECKS)

    def _post(self, case: tuple[str, dict[str, Any]]) -> None:
        path, body = case
        raw = json.dumps(body).encode(errors="surrogatepass")
        headers = {"Content-Type": "application/json"}
        answer = self._session.post(self._made.url + path, data=raw, headers=headers, timeout=ANSWER_S)
        self._note(f"contract {path}", answer.status_code, answer.elapsed.total_seconds())
        assert answer.status_code in (202, 400), f"{answer.status_code} {answer.text} to {raw!r}"

    def _note(self, operation: str, status: int, elapsed_s: float) -> None:
        self.tally.answers[status] += 1
        self.tally.by_operation[operation] += 1
        self.tally.slowest_s = max(self.tally.slowest_s, elapsed_s)

    def _judge(self) -> None:
        """No contract that was accepted makes the service itself fail."""
        records, deadline = self._made.records, time.monotonic() + JUDGED_S

        def ended() -> int:
            counters = records.counters()
            return int(sum(counters[f"by_state:{state}"] for state in (State.COMPLETED, State.FAILED)))

        while ended() < self._judged and records.queue_length() and time.monotonic() < deadline:
            time.sleep(0.1)
        while open_ := [view.job_id for state in State if not state.terminal for view in records.list(state=state)]:
            records.cancel_many(open_)
            time.sleep(0.1)
        counters = records.counters()
        self.tally.jobs.update({state: int(counters[f"by_state:{state}"]) for state in State})
        self.tally.jobs.update(
            {name.removeprefix("by_verdict:"): int(n) for name, n in counters.items() if name.startswith("by_verdict:")}
        )
        failed = records.list(state=State.FAILED)
        assert not failed, f"the service failed {len(failed)} jobs: {failed[0]}"


def _seconds(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
