"""A builder compiles each language for a GPU that it does not see; a run finds that, and a refusal names the line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

from backends.code_listings import CodeText, listings
from backends.dry_run.child import CACHE_FOLDERS
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.listing import Form
from domain.result import Status
from tests.backends.extensions.test_jit_build import H200, in_builder, in_runner
from tests.backends.languages.sources import SOURCES, installed


def stored(folder: Path) -> set[Path]:
    """The files of machine code and modules that the caches hold, by their paths below the folder."""
    kinds = (".cubin", ".so", ".mlir")
    files = (path for cache in CACHE_FOLDERS for path in (folder / cache).rglob("*") if path.suffix in kinds)
    return {path.relative_to(folder) for path in files}


@pytest.mark.parametrize("name", SOURCES)
def test_it_compiles_without_a_gpu_once(name: str, tmp_path: Path) -> None:
    installed(name)
    given = SOURCES[name].kernel()
    # As `torch`, which calls the source as Python: only gluon has a contract instead.
    ways = [given] if given.io is not None else [given, Kernel(given.source_code, type(given.kernel_type).TORCH)]
    for way in ways:
        folder = tmp_path / way.kernel_type
        folder.mkdir()
        facts = in_builder(way, folder, H200).facts
        assert name in facts["languages"]
        assert facts.get("compiled_ahead") or facts["dry_run"]["ended"] == "completed", facts
        assert stored(folder)
        elsewhere = tmp_path / f"{way.kernel_type}-again"
        for cache in CACHE_FOLDERS:
            if (folder / cache).is_dir():
                shutil.copytree(folder / cache, elsewhere / cache)
        elsewhere.mkdir(exist_ok=True)
        in_builder(way, elsewhere, H200)
        assert stored(elsewhere) == stored(folder)
        (code,) = [text for text in listings(folder, [Form.SASS]) if isinstance(text, CodeText)] or [None]
        assert code is not None and "SM90" in code.text.upper().replace("_", "")


@pytest.mark.parametrize("name", SOURCES)
def test_a_refusal_is_a_compile_error_at_its_line(name: str, tmp_path: Path) -> None:
    installed(name)
    source = SOURCES[name]
    with pytest.raises(KernelFault) as caught:
        in_builder(source.kernel(wrong=True), tmp_path, H200)
    assert caught.value.status is Status.COMPILE_ERROR
    assert source.wrong in f"{caught.value.message}{caught.value.log}"
    assert re.search(r"\(line \d+ of the (source|kernel)", caught.value.message)


def test_a_compiler_that_looks_for_the_gpu_is_left_to_the_run(tmp_path: Path) -> None:
    installed("cute_dsl")
    given = SOURCES["cute_dsl"].kernel()
    looks = "    import ctypes\n    assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n    blocks = ("
    source = given.source_code.replace("    blocks = (", looks)
    told = in_builder(Kernel(source, given.kernel_type), tmp_path, H200).facts["dry_run"]
    assert told["ended"] == "stopped" and "may have looked at the GPU" in told["reason"]


def test_a_persistent_kernel_asks_for_a_card_that_is_pretended(tmp_path: Path) -> None:
    installed("cute_dsl")
    given = SOURCES["cute_dsl"].kernel()
    asks = "    import cutlass.utils\n    assert cutlass.utils.HardwareInfo().get_max_active_clusters(2) == 66\n"
    source = given.source_code.replace("    blocks = (", f"{asks}    blocks = (")
    told = in_builder(Kernel(source, given.kernel_type), tmp_path, H200).facts["dry_run"]
    assert told["ended"] == "completed" and len(told["compiled"]) == 1, told


def test_a_search_for_a_configuration_ends_the_dry_run(tmp_path: Path) -> None:
    installed("helion")
    source = SOURCES["helion"].kernel().source_code.replace("config=helion.Config(block_sizes=[4])", "")
    told = in_builder(Kernel(source, SOURCES["helion"].kernel().kernel_type), tmp_path, H200).facts["dry_run"]
    assert told["ended"] == "stopped" and "give @helion.kernel one" in told["reason"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("config", "says"),
    [("", "give @helion.kernel one"), ('config=helion.Config(block_sizes=[4], pid_type="persistent_blocked")', "TODO")],
    ids=["a search", "a persistent grid"],
)
def test_what_helion_needs_a_gpu_for_is_unsupported(config: str, says: str, tmp_path: Path) -> None:
    installed("helion")
    source = SOURCES["helion"].kernel().source_code.replace("config=helion.Config(block_sizes=[4])", config)
    given = Kernel(source, SOURCES["helion"].kernel().kernel_type)
    executable = in_runner(given, tmp_path, in_builder(given, tmp_path))
    with pytest.raises(KernelFault, match=f"this worker has no GPU.*{says}") as caught:
        executable.call(executable.own_inputs(0))
    assert caught.value.status is Status.UNSUPPORTED


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", [name for name in SOURCES if name != "helion"])  # Triton's interpreter runs that.
def test_without_a_gpu_a_call_is_unsupported(name: str, tmp_path: Path) -> None:
    installed(name)
    given = SOURCES[name].kernel()
    executable = in_runner(given, tmp_path, in_builder(given, tmp_path))
    args = executable.own_inputs(0) or [torch.zeros(4000), torch.zeros(4000), torch.zeros(4000), 2.5, 4000, 1024]
    with pytest.raises(KernelFault, match=r"this worker has no (CUDA device|GPU)") as caught:
        executable.call(args)
    assert caught.value.status is Status.UNSUPPORTED
