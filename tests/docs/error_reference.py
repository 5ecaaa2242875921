"""docs/errors.md, made of the code: `python -m tests.docs.error_reference` writes it."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client"))

from api.http.problems import Kind
from api.pages import next_step
from domain.flags.codes import FlagCode
from domain.result import Status
from kernel_eval_client import errors
from kernel_eval_client.cli.exits import MEANINGS
from kernel_eval_client.errors import KernelEvalError, RateLimited, ServiceError
from kernel_eval_client.wire import Response, error_of

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


def text() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Errors"
    yield ""
    yield "Made of the code by `python -m tests.docs.error_reference`; a test fails when it is stale."
    yield "A kernel that fails is a [verdict](#verdicts) and no error: its answer is a 200."
    yield ""
    yield "## Problems"
    yield ""
    yield "The service sends these errors as `application/problem+json`; `detail` says what to do."
    yield "The last columns are what the Python client raises, and whether it tries again first."
    yield ""
    yield "| status | `type` | title | what to do (`next`) | raised | tried again |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for kind in sorted(Kind, key=lambda each: (each.value[0], each.name)):
        status, title = kind.value
        body = {"type": kind.urn, "title": title, "status": status, "detail": title}
        error = error_of(Response(status, {"Content-Type": "application/problem+json"}, json.dumps(body).encode()))
        again = isinstance(error, (ServiceError, RateLimited)) and not isinstance(error, errors.JobFailed)
        step, name = next_step.OF_PROBLEM[kind.slug], type(error).__name__
        yield f"| {status} | `{kind.urn}` | {title} | {step} | `{name}` | {'yes' if again else 'no'} |"
    yield ""
    yield "## Verdicts"
    yield ""
    yield "Where the cause is known, a result's `next` is more exact (`api/pages/next_step.py`)."
    yield ""
    yield "| `verdict` | what to do (`next`) |"
    yield "| --- | --- |"
    for verdict in Status:
        step = next_step.OF_VERDICT.get(verdict, "Nothing: it ran, and in a comparison it is right.")
        yield f"| `{verdict}` | {step} |"
    yield ""
    yield "## Flags"
    yield ""
    yield "A flag never changes a verdict. Each has a `code`, a `message` for people, and its figures as `data`."
    yield "Match the code: messages may change. [api.md](api.md#flags) says where flags appear."
    yield ""
    yield "| `code` | means | what to do |"
    yield "| --- | --- | --- |"
    for code in FlagCode:
        yield f"| `{code}` | {code.meaning} | {code.advice} |"
    yield ""
    yield "## Exceptions of the Python client"
    yield ""
    yield "| `kernel_eval_client.errors` | is a | means |"
    yield "| --- | --- | --- |"
    for name, found in vars(errors).items():
        if inspect.isclass(found) and issubclass(found, KernelEvalError) and found is not KernelEvalError:
            said = " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split())
            yield f"| `{name}` | `{found.__mro__[1].__name__}` | {said} |"
    yield ""
    yield "## Exit statuses of kernel-eval"
    yield ""
    yield "| status | means |"
    yield "| --- | --- |"
    for status, meaning in MEANINGS.items():
        yield f"| {int(status)} | {meaning} |"


if __name__ == "__main__":
    DOCUMENT.write_text(text(), encoding="utf-8")
