"""`confirm` and `qualify` of both clients, and `confirm` of the command line, against a real service on the CPU."""

from __future__ import annotations

import json

import pytest

import kernel_eval_client as ke
from kernel_eval_client import Client, errors
from kernel_eval_client.cli.main import main
from tests.client.conftest import Asked

SLOW = "def kernel_fn(x):\n    for _ in range(40):\n        x = x.cos()\n    return x\n"
INPUTS = "def get_inputs():\n    return [torch.randn(256, 256)]\n"


@pytest.fixture(scope="module")
def first(url: str) -> ke.Result:
    with Client(url) as client:
        return client.compare(ke.torch(SLOW + INPUTS), ke.torch(SLOW + INPUTS), num_trials=20, budget="quick")


def test_a_passed_comparison_is_judged_again(url: str, ask: Asked, first: ke.Result) -> None:
    assert first.speedup is not None
    second = ask(url, None, "confirm", first.job_id)
    found = second.confirmation
    assert second.passed and second.job_id != first.job_id and second.budget["name"] == "precise"
    assert (found["of"], found["verdict_stands"]) == (first.job_id, True)
    assert first.job_id in second.explanation and first.confirmation is None


def test_the_command_line_says_whether_it_stands(
    url: str, first: ke.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["--url", url, "--json", "confirm", first.job_id])
    found = json.loads(capsys.readouterr().out)["confirmation"]
    assert status == (0 if found["speedup_stands"] else 1)


def test_a_kernel_is_qualified(url: str, ask: Asked) -> None:
    found = ask(url, None, "qualify", ke.torch(SLOW + INPUTS), ke.torch(SLOW.replace("cos", "sin") + INPUTS))
    assert found.qualification["fit"] is False and found.qualification["sentence"] in found.explanation


def test_there_is_nothing_to_confirm_without_a_speedup(client: Client) -> None:
    job_id = client.evaluate(ke.torch(SLOW + INPUTS), num_trials=4, budget="quick").job_id
    with pytest.raises(errors.CallerError, match="no comparison"):
        client.confirm(job_id)
