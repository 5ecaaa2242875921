"""Nobody gets out, and nobody uses up the host: every attack of `attacks.py`, below whatever a worker may be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from domain.paths import ROOT
from sandbox.isolation.file_access import out_of_reach
from tests.conftest import die_with_parent
from tests.sandbox.allowed_operations import honest
from tests.sandbox.attacks import Attack, attacks
from tests.sandbox.interpreter import Interpreter, readable_by_all

READABLE = readable_by_all()
OURS = Interpreter(sys.executable)
# Below an interpreter in root's home a submission is confined in another way: it may search everywhere, or is root.
# What one without a user of its own can reach in a common place goes unseen there.
MODES = {"user": READABLE, "container": READABLE, "root": OURS, "tool": OURS} if os.geteuid() == 0 else {"user": OURS}
IN_ROOTS_HOME = ("user in root's home", "container in root's home")
if os.geteuid() == 0 and out_of_reach(ROOT):
    MODES |= dict.fromkeys(IN_ROOTS_HOME, OURS)
WITHOUT_FLOODS = ("tool", *IN_ROOTS_HOME)
ASSAULT_S = 300

MOST_PRINTED = 100_000
LONGEST_S = 35.0
"""Less than the deadline, on a machine with other things to do; what floods is stopped within one or two."""


@pytest.fixture(scope="module")
def assaults(request: pytest.FixtureRequest) -> Iterator[dict[str, dict[str, Any]]]:
    """What became of the attacks, by mode; two at once at most: what floods is to be stopped in time."""
    asked = {item.callspec.params.get("mode") for item in request.session.items if hasattr(item, "callspec")}
    found = [(mode, interpreter) for mode, interpreter in MODES.items() if interpreter is not None and mode in asked]
    yield {mode: told for first in range(0, len(found), 2) for mode, told in _made(found[first : first + 2])}


def _made(modes: Sequence[tuple[str, Interpreter]]) -> list[tuple[str, dict[str, Any]]]:
    started = {
        mode: subprocess.Popen(
            [interpreter.executable, "-m", "tests.sandbox.run_attacks_as", mode.partition(" ")[0], _kinds(mode)],
            cwd=ROOT,
            env=interpreter.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        for mode, interpreter in modes
    }
    made = []
    for mode, process in started.items():
        out, error = process.communicate(timeout=ASSAULT_S)
        assert process.returncode == 0, error
        made.append((mode, json.loads(out.splitlines()[-1])))
    return made


def _kinds(mode: str) -> str:
    return "without floods" if mode in WITHOUT_FLOODS else "all"


NEEDS_IT = "no interpreter here that every user may read"
IN_MODE = {
    mode: pytest.param(
        mode,
        marks=[
            pytest.mark.skipif(interpreter is None, reason=NEEDS_IT),
            # The same confinement with one layer the other way, by the same attacks: in the long run.
            *([pytest.mark.slow] if mode in IN_ROOTS_HOME else []),
        ],
    )
    for mode, interpreter in MODES.items()
}
every_mode = pytest.mark.parametrize("mode", IN_MODE.values())


@every_mode
@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.name)
def test_it_is_contained(assaults: dict[str, dict[str, Any]], mode: str, attack: Attack) -> None:
    if attack.floods and mode in WITHOUT_FLOODS:
        pytest.skip("the limits are those of the other modes")
    end = assaults[mode]["ends"][attack.name]
    assert "GOT" not in end["output"], end
    # Refused, and the source went on; or stopped with one of the verdicts that say so.
    held = end["status"] == "passed" and "HELD" in end["output"]
    assert held or end["status"] in attack.ends, end
    assert end["left"] == [] and not end["folder_left"], end
    assert len(end["output"]) < MOST_PRINTED
    assert end["seconds"] < LONGEST_S


@every_mode
@pytest.mark.parametrize("submission", honest(), ids=lambda submission: submission.name)
def test_what_is_honest_goes_on(assaults: dict[str, dict[str, Any]], mode: str, submission: Attack) -> None:
    end = assaults[mode]["honest"][submission.name]
    assert end["status"] == "passed" and "GOT" in end["output"], end
    assert end["left"] == [] and not end["folder_left"], end


@every_mode
def test_the_host_is_as_it_was(assaults: dict[str, dict[str, Any]], mode: str) -> None:
    unharmed = assaults[mode]["unharmed"]
    assert all(unharmed.values()), unharmed
    assert (assaults[mode]["user"] == 0) == (not mode.startswith("user"))


def test_there_are_attacks_of_every_kind() -> None:
    assert len({attack.name for attack in attacks()}) == len(attacks()) > 40
