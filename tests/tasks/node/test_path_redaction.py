"""No path of this machine in what a caller is told."""

from __future__ import annotations

import sys
from pathlib import Path

from domain.paths import ROOT
from domain.settings import settings
from tasks.node.path_redaction import without_machine_paths


def test_folders_of_this_machine_are_cut_off() -> None:
    job = settings().state_dir / "work" / "worker-1" / "job-2"
    text = (
        f"{job}/kernel.cu(3): error\nc++ -I{settings().state_dir}/toolchains/ab12/include {ROOT}/tasks/x.py\n"
        f"{sys.prefix}/lib/python3.12/site-packages/torch/include/ATen/ATen.h:7, in {job}"
    )
    told = without_machine_paths(text, job)
    assert told == "kernel.cu(3): error\nc++ -Itoolchains/ab12/include tasks/x.py\ntorch/include/ATen/ATen.h:7, in ."


def test_where_another_node_has_built_it_is_cut_off() -> None:
    text = '.file 1 "/mnt/state/work/worker-a_1/job-b2/candidate/ext/cuda.cu"; -I/mnt/work/worker-a/job-b/build/include'
    assert without_machine_paths(text, Path("/nowhere/job")) == '.file 1 "ext/cuda.cu"; -Iinclude'


def test_a_strangers_text_takes_no_longer_than_it_is_long() -> None:
    for text in ("/" * (1 << 20), "/worker-" * (1 << 17), "/dist-package" * (1 << 16)):
        assert without_machine_paths(text, Path("/nowhere/job")) == text


def test_what_is_no_path_of_ours_stays() -> None:
    assert without_machine_paths("a/b /etc/passwd: denied", Path("/nowhere/job")) == "a/b /etc/passwd: denied"
