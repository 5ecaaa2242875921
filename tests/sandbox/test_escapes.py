"""Nobody gets out, and nobody uses up the host: every attack of `attacks.py`, from root, a user, and beneath a tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import die_with_parent
from tests.sandbox.attacks import Attack, attacks

ROOT = Path(__file__).resolve().parents[2]
MODES = ("root", "user", "tool") if os.geteuid() == 0 else ("user",)
ASSAULT_S = 300

MOST_PRINTED = 100_000
LONGEST_S = 15.0
"""On a machine with other things to do; what floods is stopped within one or two."""


@pytest.fixture(scope="module")
def assaults() -> Iterator[dict[str, dict[str, Any]]]:
    """What became of the attacks, by mode; two at once at most: what floods is to be stopped in time."""
    yield {mode: told for pair in (MODES[:2], MODES[2:]) for mode, told in _made(pair)}


def _made(modes: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    started = {
        mode: subprocess.Popen(
            [sys.executable, "-m", "tests.sandbox.assault", mode],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        for mode in modes
    }
    made = []
    for mode, process in started.items():
        out, error = process.communicate(timeout=ASSAULT_S)
        assert process.returncode == 0, error
        made.append((mode, json.loads(out.splitlines()[-1])))
    return made


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.name)
def test_it_is_contained(assaults: dict[str, dict[str, Any]], mode: str, attack: Attack) -> None:
    end = assaults[mode]["ends"][attack.name]
    assert "GOT" not in end["output"], end
    # Refused, and the source went on; or stopped with one of the verdicts that say so.
    held = end["status"] == "passed" and "HELD" in end["output"]
    assert held or end["status"] in attack.ends, end
    assert end["left"] == [] and not end["folder_left"], end
    assert len(end["output"]) < MOST_PRINTED
    assert end["seconds"] < LONGEST_S


@pytest.mark.parametrize("mode", MODES)
def test_the_host_is_as_it_was(assaults: dict[str, dict[str, Any]], mode: str) -> None:
    unharmed = assaults[mode]["unharmed"]
    assert all(unharmed.values()), unharmed
    assert (assaults[mode]["user"] == 0) == (mode != "user")


def test_there_are_attacks_of_every_kind() -> None:
    assert len({attack.name for attack in attacks()}) == len(attacks()) > 40
