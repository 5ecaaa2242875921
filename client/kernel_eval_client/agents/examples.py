"""The starter suite as examples: the list of its problems, the source of a reference or of a solution."""

from __future__ import annotations

import json

from kernel_eval_client.contract import IOContract
from kernel_eval_client.errors import CallerError
from kernel_eval_client.similar_name import did_you_mean
from kernel_eval_client.suites import STARTER, Problem, read


def describe(name: str | None = None, candidate: str | None = None) -> str:
    """Without a name: the problems, or those with a solution `candidate`. With a name: the problem's reference.

    With both: that solution, with its contract if it has one. Raises CallerError for an unknown name or solution.
    """
    if name is None:
        selected = [each for each in read(STARTER) if candidate is None or candidate in _labels(each)]
        if not selected:
            labels = ", ".join(sorted({label for each in read(STARTER) for label in _labels(each)}))
            raise CallerError(f"no example has a solution {candidate!r}; there are {labels}")
        return "\n".join(
            [*map(_line, selected), "", "list_examples(name) shows a reference, with candidate a solution."]
        )
    problems = {each.name: each for each in read(STARTER)}
    problem = problems.get(name) or next((each for key, each in problems.items() if key.endswith(f"/{name}")), None)
    if problem is None or problem.reference is None:
        near = did_you_mean(name, problems)
        raise CallerError(f"there is no example {name!r}; list_examples() without a name lists them{near}")
    if candidate is None:
        return f"{problem.reference.source_code}\n# solutions: {', '.join(_labels(problem))}"
    kernel = {each.label: each.kernel for each in problem.candidates}.get(candidate)
    if kernel is None:
        labels = ", ".join(_labels(problem))
        raise CallerError(f"{problem.name} has no solution {candidate!r}; it has {labels}")
    contract = "" if not isinstance(kernel.io, IOContract) else f"\nio: {json.dumps(kernel.io.to_dict())}"
    return kernel.source_code + contract


def _line(problem: Problem) -> str:
    return f"{problem.name}: {','.join(_labels(problem))}"


def _labels(problem: Problem) -> list[str]:
    return [each.label for each in problem.candidates]
