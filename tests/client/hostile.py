"""A stand-in for the service whose every answer is full of what a terminal would obey."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from tests import device_answers
from tests.client.failing import Reply, Seen, Told, Wire

FORGED = "FORGED"
MARKUP = "[red][link=http://evil.example]x[/link]"
HOSTILE = (
    "\x1b]0;title\x1b\\ \x1b]52;c;ZXZpbA==\x07 \x1b[2J\x1b[8mhidden \x9b2J \x90q\x9c \x00\x08\x7f\r \u202e\u2066\u200f"
    f" \u2028\u2029\x85 \ufeff\U000e0041 \ud800 \udfff {MARKUP}\n{FORGED}  passed  kernel.py"
)
AS_IT_IS = frozenset({"job_id", "state", "format", "side", "type"})
"""Members that decide what the client does next."""

_OF_RICH = re.compile(r"\x1b\[[0-9;]*[mKAG]|\x1b\[\?25[lh]|\r")
_FORGED = re.compile(rf"^( {{0,3}}| {{5,}}){FORGED}", re.MULTILINE)
"""Four spaces stand before each line of a stranger's text."""


def obeyed(text: str, *, styled: bool = False) -> list[str]:
    """What of it a terminal would obey, or a person take for a line of ours. `styled`: rich may write its own."""
    found = [each for each in ("\x1b[8m", "\x1b[2J", "\x1b]") if each in text]
    if styled:
        text = _OF_RICH.sub("", text)
    hidden = {each for each in text if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - {"\n", "\t"}
    return [*found, *map(repr, sorted(hidden)), *(each[0] for each in _FORGED.finditer(text))]


def poisoned(value: Any, kept: frozenset[str] = AS_IT_IS) -> Any:
    """The same with that behind every string but those of the members that are kept."""
    if isinstance(value, dict):
        return {name: each if name in kept else poisoned(each, kept) for name, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, kept) for each in value]
    return value + HOSTILE if isinstance(value, str) else value


def flag(message: str) -> Wire:
    return {"code": "code", "message": message, "data": {"figure": "x"}, "kernel": "candidate"}


def result(verdict: str = "wrong_result") -> Wire:
    """A result with everything that one may have."""
    stats = {"mean": 1.0, "std": 0.1, "min": 0.9, "max": 1.1, "median": 1.0, "percentile_95": 1.1, "percentile_99": 1.1}
    timing = {"stats": stats, "calls": 10, "method": "events", "flags": [flag("noisy")], "latency_ms": 1.0}
    counted = {"status", "unit"}
    metrics = device_answers.measured(reference=device_answers.unavailable())
    checked = device_answers.sanitizer(device_answers.finding(), device_answers.finding(line=None))
    kernel = {
        **{"status": verdict, "compiled": True, "correctness": False, "timing": timing},
        "comparison": {
            **{
                "passed": False,
                "mismatch_count": 1,
                "element_count": 4,
                "atol": 0.1,
                "rtol": 0.1,
                "message": "one of four",
            },
            "weak_reference": [flag("anything would pass")],
        },
        "compilation_error": 'boom\n  File "kernel.py", line 1\n  File "kernel.py", line 2\nError: no',
        "validation_error": "wrong",
        "profiling_error": "none",
        "output": "said",
        "inputs": {"inferred": "from the source"},
        "build": {"kernels": [{"name": "k", "registers": 8, "occupancy": 0.5, "limited_by": "warps"}], "log": "built"},
        "launches": {"launches": 1, "kernels": [{"name": "k", "share": 0.5, "library": "cublas"}]},
        "artifacts": [
            {"format": "ptx", "name": "k", "kernel": "k", "variant": "v"},
            {"format": "sass", "unavailable": "no"},
        ],
        "metadata": {"kernel_name": "k"},
    }
    told = {
        **{
            "job_id": "j1",
            "verdict": verdict,
            "kernel_exec_result": kernel,
            "ref_result": kernel,
            "flags": [flag("odd")],
        },
        **{
            "speedup_unavailable_reason": "wrong",
            "explanation": "It is wrong.",
            "report": "/job/j1/report",
            "gpu_type": "h200",
        },
        "environment": {"gpu_name": "card", "device": "cuda"},
        "speedup": {"ratio": 1.0, "ci_low": 0.9, "ci_high": 1.1, "verdict": "same"},
        "failed_attempts": [{"attempt": 1, "reason": "lost"}],
    }
    poison: Wire = poisoned(told)
    kept = AS_IT_IS | counted
    for side in ("kernel_exec_result", "ref_result"):
        poison[side]["metadata"]["device_metrics"] = poisoned(metrics, kept)
        poison[side]["sanitizer"] = poisoned(checked, kept)
    return poison


def job(state: str, **more: Any) -> Wire:
    """A job in that state."""
    told = {
        **{"job_id": "j1", "state": state, "stage": "running", "operation": "evaluate", "kernel_type": "torch"},
        **{
            "worker": "w",
            "error": "lost",
            "explanation": "It waits.",
            "queue_position": 3,
            "summary": {"verdict": "passed"},
        },
        "timeline": [{"stage": "queued", "at": 1.0}, {"stage": "build", "at": 2.0}],
        "failed_attempts": [{"attempt": 1, "reason": "killed"}],
    }
    return {**poisoned(told), **more}


def service() -> Told:
    """Every path of it."""
    return Told(answer=_answer)


def broken(status: int) -> Told:
    """One that answers all with a problem."""
    fields = [{"path": ["kernel", HOSTILE], "pointer": "/kernel", "message": HOSTILE}] if status == 400 else []
    return Told(Reply(status, {"type": "about:blank", "status": status, "detail": "no" + HOSTILE, "errors": fields}))


def _answer(asked: Seen) -> Reply:
    ended = job("completed", result=result())
    if asked.path == "/health":
        return Reply(200, _health())
    if asked.path.endswith("/source"):
        kernel = {"kernel_type": "torch", "source_code": f"x = 1{HOSTILE}"}
        return Reply(200, {"job_id": "j1", "name": HOSTILE, "kernel": kernel, "reference": kernel})
    if asked.path == "/openapi.json":
        return Reply(200, {"info": {"version": "1" + HOSTILE}})
    if asked.path == "/jobs":
        return Reply(200, {"jobs": [job("running" + HOSTILE, job_id="j2" + HOSTILE), ended], "next_cursor": None})
    if asked.path.endswith("/events"):
        return Reply(200, _events(), {"Content-Type": "text/event-stream"})
    if asked.path.endswith("/report"):
        page = f"<!doctype html><p>{HOSTILE}".encode(errors="replace")
        return Reply(200, page, {"Content-Type": "text/html; charset=utf-8"})
    if "/artifacts/" in asked.path:
        return Reply(200, b"bytes", {"Content-Type": "text/plain"})
    if asked.method == "DELETE":
        return Reply(200, job("cancelled"))
    return Reply(202 if asked.method == "POST" else 200, job("queued") if asked.method == "POST" else ended)


def _events() -> bytes:
    told = [("stage", {"stage": "build" + HOSTILE, "at": 1.0}), ("verdict", {"correct": False, "final": False})]
    lines = [f"id: {number}\nevent: {name}\ndata: {json.dumps(data)}\n\n" for number, (name, data) in enumerate(told)]
    return "".join([*lines, f"id: 9\nevent: done\ndata: {json.dumps(job('completed'))}\n\n"]).encode()


def _health() -> Wire:
    layers = {"landlock" + HOSTILE: {"active": False, "detail": "none" + HOSTILE}}
    worker = {"name": "w", "gpu_available": True, "gpu_name": "card", "quarantined": "Xid", "versions": {"torch": "2"}}
    told = {"broker": "ready", "gpu_available": True, "gpu_count": 1, "reasons": ["away"]}
    well = {**worker, "name": "v", "quarantined": None}
    return {
        **poisoned(told, frozenset({"broker"})),
        **{"status": "healthy", "workers": [{**poisoned(each), "sandbox": layers} for each in (worker, well)]},
        "broker_warnings": [{"code": "redis-no-password", "message": "none" + HOSTILE}],
    }
