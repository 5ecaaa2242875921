"""Texts of code out of what real builds leave: NVRTC's, Triton's, nvcc's; and reasons where there is none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends import code_listings
from backends.binary import disassembler
from backends.code_listings import CodeText, MissingText
from backends.extensions.compiler_driver import compile_with_ptx
from backends.triton import cache
from domain.listing import Form
from tests.backends.contracts import contract
from tests.backends.cuda.test_backend import SCALE, built_cuda
from tests.backends.loading import built, kernel
from tests.backends.triton.test_backend import ADD, BLOCK, CDIV, H200, HEAD, TENSORS, TUNED, N

with_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
EXTENSION = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }"


def found(folder: Path, *forms: Form) -> list[CodeText]:
    told = code_listings.listings(folder, forms or list(Form))
    assert all(isinstance(one, CodeText) for one in told), told
    return [one for one in told if isinstance(one, CodeText)]


def lacking(folder: Path, *forms: Form) -> list[MissingText]:
    return [one for one in code_listings.listings(folder, forms) if isinstance(one, MissingText)]


def test_raw_cuda(tmp_path: Path) -> None:
    built_cuda(SCALE, tmp_path)
    sass, ptx = found(tmp_path)
    assert (sass.form, ptx.form, ptx.kernel, ptx.variant) == (Form.SASS, Form.PTX, "scale", None)
    assert ".visible .entry _Z5scalePKfPffi" in ptx.text and "__ke_" not in ptx.text
    assert "FMUL" in sass.text and "EXIT" in sass.text and not sass.truncated
    assert str(tmp_path) not in sass.text
    assert {path.name for path in tmp_path.iterdir()} == {"kernel.cubin", "kernel.ptx", "kernel.json"}


def test_a_long_text_is_cut_at_the_end_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_cuda(SCALE, tmp_path)
    whole = found(tmp_path)
    monkeypatch.setattr(code_listings, "MAX_CHARS", 500)
    for one, short in zip(whole, found(tmp_path), strict=True):
        assert short.truncated and 0 < len(short.text) <= 500 and short.text.endswith("\n")
        assert one.text.startswith(short.text)


@pytest.fixture
def compiled_by_triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    yield tmp_path


def test_every_stage_of_triton(compiled_by_triton: Path) -> None:
    io = contract(*TENSORS, N, BLOCK, grid=CDIV, num_warps=8, num_stages=2)
    built(kernel(HEAD + ADD, "triton", io), compiled_by_triton, H200)
    texts = {one.form: one for one in found(compiled_by_triton)}
    assert set(texts) == set(Form)
    assert {(one.kernel, one.variant) for one in texts.values()} == {("add", "num_warps=8, num_stages=2")}
    assert "tt.load" in texts[Form.TTIR].text and "ttg.num-warps" in texts[Form.TTGIR].text
    assert "define" in texts[Form.LLIR].text and ".entry add" in texts[Form.PTX].text
    assert "EXIT" in texts[Form.SASS].text


def test_what_triton_compiled_is_told_as_it_was_when_it_was_compiled(compiled_by_triton: Path) -> None:
    ahead = built(kernel(HEAD + TUNED, "triton", contract(*TENSORS, N, grid=CDIV)), compiled_by_triton, H200)
    assert len(ahead.facts["variants"]) == 2 and all(one["registers"] > 0 for one in ahead.facts["variants"])
    needed = cache.list_resources(compiled_by_triton, "sm_90", 16)
    assert needed == [{"name": "add", **variant} for variant in ahead.facts["variants"]]
    (first,) = cache.list_resources(compiled_by_triton, None, 1)
    assert first["registers"] == needed[0]["registers"] and "occupancy" not in first


def test_configurations_of_one_kernel_are_told_apart(compiled_by_triton: Path) -> None:
    built(kernel(HEAD + TUNED, "triton", contract(*TENSORS, N, grid=CDIV)), compiled_by_triton, H200)
    texts = found(compiled_by_triton, Form.TTGIR)
    assert [str(one.variant).partition(",")[0] for one in texts] == ["num_warps=2", "num_warps=8"]
    assert '"ttg.num-warps" = 8' in texts[1].text


def extension_in(folder: Path) -> Path:
    place = folder / "ext" / "twice"
    place.mkdir(parents=True)
    (place / "twice.cu").write_text(EXTENSION)
    target = place / "twice.cuda.o"
    flags = ["-gencode=arch=compute_90,code=sm_90", "-Xcompiler", "-fPIC"]
    status, text = compile_with_ptx(["nvcc", *flags, "-c", str(place / "twice.cu"), "-o", str(target)], target)
    assert (status, text) == (0, "")
    subprocess.run(["nvcc", "-shared", *flags, "-o", str(place / "twice.so"), str(target)], check=True)
    return place


@with_nvcc
def test_an_extensions_library(tmp_path: Path) -> None:
    place = extension_in(tmp_path)
    sass, ptx = found(tmp_path)
    assert (sass.kernel, ptx.kernel) == ("twice", "twice")
    assert ".entry _Z5twicePf" in ptx.text
    assert "Z5twicePf" in sass.text and "STG" in sass.text
    # Compiled in one step, no PTX is kept.
    (place / "twice.cuda.o.ptx").unlink()
    (reason,) = lacking(tmp_path, Form.PTX)
    assert reason.kernel == "twice" and "request sass" in reason.reason


def test_without_the_tools_the_reason_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_cuda(SCALE, tmp_path)
    monkeypatch.setattr(disassembler, "DISASSEMBLER", "nvdisasm-of-no-toolkit")
    (reason,) = lacking(tmp_path, Form.SASS)
    assert "no nvdisasm-of-no-toolkit" in reason.reason and "CUDA toolkit" in reason.reason
    assert [one.form for one in found(tmp_path, Form.PTX)] == [Form.PTX]


def test_what_is_no_machine_code_is_a_reason(tmp_path: Path) -> None:
    built_cuda(SCALE, tmp_path)
    (tmp_path / "kernel.cubin").write_bytes(b"\x7fELF" + bytes(300))
    (tmp_path / "kernel.ptx").unlink()
    os.mkfifo(tmp_path / "kernel.ptx")
    reasons = {one.form: one.reason for one in lacking(tmp_path, Form.SASS, Form.PTX)}
    assert reasons[Form.SASS].startswith("nvdisasm did not read the machine code: ")
    assert reasons[Form.PTX] == "its file is not there"


def test_files_that_no_build_of_ours_leaves(tmp_path: Path) -> None:
    """Nothing of it is worth an exception: a submission may write whatever it likes into its folder."""
    assert code_listings.listings(tmp_path, list(Form)) == []
    (tmp_path / "ext").write_text("a file")
    for number, note in enumerate(["[]", "{", "{}", '{"num_warps": "x", "num_stages": 1}', "\x00", "[" * 100_000]):
        place = tmp_path / "triton" / str(number)
        place.mkdir(parents=True)
        (place / "k.json").write_text(note)
        (place / "k.cubin").touch()
    (tmp_path / "kernel.cubin").touch()
    (tmp_path / "kernel.json").write_text(json.dumps({"name": 1}))
    assert [one.kernel for one in lacking(tmp_path, Form.SASS)] == ["1"]


def test_of_very_many_the_first_are_told(tmp_path: Path) -> None:
    for number in range(40):
        place = tmp_path / "triton" / f"{number:02}"
        place.mkdir(parents=True)
        (place / "k.json").write_text(json.dumps({"num_warps": number, "num_stages": 1}))
        (place / "k.cubin").touch()
        (place / "k.ptx").write_text(str(number))
    assert [one.text for one in found(tmp_path, Form.PTX)] == [str(number) for number in range(code_listings.MAX_CODES)]
