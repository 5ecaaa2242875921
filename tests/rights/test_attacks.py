"""The attacks of tests/sandbox/attacks.py, but for floods, by submissions of a worker under each set of rights."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.rights.host import ROOT, interpreter, require, writable_folder
from tests.rights.rights_sets import EVERY_SET, Rights
from tests.sandbox.allowed_operations import honest
from tests.sandbox.attacks import attacks

ASSAULT_S = 280


@pytest.mark.slow
@pytest.mark.parametrize("rights", EVERY_SET, ids=lambda rights: rights.name)
def test_every_attack_is_contained_and_honest_work_goes_on(rights: Rights) -> None:
    require(rights)
    with writable_folder(rights) as folder:
        command = [*interpreter(rights, folder), "-m", "tests.sandbox.run_attacks_as", "root", "without floods"]
        environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
        ran = subprocess.run(
            command,
            cwd=ROOT,
            env=environment | {"ASSAULT_FOLDER": str(folder)},
            capture_output=True,
            text=True,
            timeout=ASSAULT_S,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    made = [attack for attack in attacks() if not attack.floods]
    assert told["ends"].keys() == {attack.name for attack in made} and len(made) > 40
    for attack in made:
        end = told["ends"][attack.name]
        held = end["status"] == "passed" and "HELD" in end["output"]
        assert "GOT" not in end["output"] and (held or end["status"] in attack.ends), (attack.name, end)
        assert end["left"] == [] and not end["folder_left"], (attack.name, end)
    for one in honest():
        end = told["honest"][one.name]
        assert (end["status"], "GOT" in end["output"], end["left"]) == ("passed", True, []), (one.name, end)
    assert all(told["unharmed"].values()), told["unharmed"]
