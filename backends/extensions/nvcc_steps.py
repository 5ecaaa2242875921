"""Runs one nvcc command as its separate steps, with the host's front end in parallel to the device's compiler."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_PREFIX = "#$ "
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)")
_MODULE_ID = re.compile(r'--gen_module_id_file\s+--module_id_file_name\s+"([^"]+)"')


_PSEUDO = "-- "
"""Prefix of a step that nvcc performs internally, which cannot be started as a program here."""
SIGNALLED = 128
"""The exit status that a shell reports for a program killed by a signal, minus the signal's number."""
_DEPENDENCIES = {"--generate-dependencies-with-compile": 0, "-MD": 0, "-MMD": 0, "--dependency-output": 1, "-MF": 1}
"""Flags that list headers for make and ninja, and how many words follow each. They are dropped, because nvcc has a
pseudo-step for them. A job's folder is built only once, and ninja takes a missing list for an empty one."""


class UnknownSteps(Exception):
    """nvcc uses steps that this module does not know: run the command unchanged."""


class Steps:
    """The steps of one compilation, as `nvcc --dryrun` lists them.

    Both front ends need the module's id, which the host's front end normally generates. Here it is written in advance.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self.environment = {**os.environ, "TMPDIR": str(folder)}  # noqa: TID251 - as the compiler would inherit it
        dry_run = subprocess.run(
            [*_without_dependencies(command), "--dryrun", "--keep", "--keep-dir", str(folder)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if dry_run.returncode != 0:
            raise UnknownSteps(dry_run.stderr)
        steps: list[str] = []
        for line in dry_run.stderr.splitlines():
            step = line.removeprefix(_PREFIX)
            variable = _VARIABLE.fullmatch(step)
            if variable:
                self.environment[variable[1]] = variable[2]
            elif line.startswith(_PREFIX) and not step.startswith("rm "):
                steps.append(step)
        if any(step.startswith(_PSEUDO) for step in steps):
            raise UnknownSteps("\n".join(steps))
        fronts = [number for number, step in enumerate(steps) if step.startswith("cudafe++ ")]
        if len(fronts) != 1 or not any("/cicc" in step for step in steps) or ".cudafe1.cpp" not in steps[-1]:
            raise UnknownSteps("\n".join(steps))
        cut = fronts[0] + 1
        if " -E " not in steps[cut]:  # Otherwise it would need the host's output.
            raise UnknownSteps("\n".join(steps))
        module_id = _MODULE_ID.search(steps[cut - 1])
        if module_id is None:
            raise UnknownSteps(steps[cut - 1])
        name = hashlib.blake2b(str(folder).encode(), digest_size=4).hexdigest()
        Path(module_id[1]).write_text(f"_{name}_2_cu_kernel_eval", encoding="utf-8")
        steps[cut - 1] = steps[cut - 1].replace("--gen_module_id_file", "")
        self.host, self.device, self.last = steps[:cut], steps[cut:-1], steps[-1]

    def run(self) -> tuple[int, str]:
        """Returns the exit status and the compilers' output."""
        with ThreadPoolExecutor(2) as pool:
            device = pool.submit(self._run, self.device)
            status, text = self._run(self.host)
            device_status, device_text = device.result()
        if status or device_status:
            return status or device_status, text + device_text
        status, last_text = self._run([self.last])
        return status, text + device_text + last_text

    def _run(self, steps: list[str]) -> tuple[int, str]:
        text = ""
        for step in steps:
            done = subprocess.run(
                step,
                shell=True,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            text += done.stdout + signal_line(step.split()[0], done.returncode)
            if done.returncode != 0:
                return done.returncode, text
        return 0, text


def signal_line(program: str, status: int) -> str:
    """A line for the log, since a killed compiler cannot write one; empty where no signal killed it.

    `status` is subprocess's: -N for signal N.
    """
    return f"{os.path.basename(program)} was killed by signal {-status}\n" if status < 0 else ""


def exit_status(status: int) -> int:
    """The status as a shell reports it: subprocess's -9 is 137."""
    return SIGNALLED - status if status < 0 else status


def _without_dependencies(command: list[str]) -> list[str]:
    remaining: list[str] = []
    words = iter(command)
    for word in words:
        following = _DEPENDENCIES.get(word)
        if following is None:
            remaining.append(word)
        for _ in range(following or 0):
            next(words, None)
    return remaining
