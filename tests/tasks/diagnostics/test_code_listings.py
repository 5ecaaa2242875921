"""The code of whole jobs' kernels: read in the sandbox, cleaned, bounded; a reason for each text that is not there."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.cuda import nvrtc
from domain.listing import Form, Listing, NoListing, unpack
from domain.request import Request
from domain.result import Outcome, Report, Status
from sandbox.supervisor.session import Session
from tasks.diagnostics import code_listings
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.backends.binary.test_cubin import compiled
from tests.backends.cuda.test_backend import IO, SCALE
from tests.own_worker import own_worker
from tests.tasks.example_jobs import RELU

RAW = {"source_code": SCALE, "kernel_type": "cuda", "io": IO}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as made:
        yield made


def judged(worker: WorkerContext, kernel: dict[str, Any], *forms: str, **more: Any) -> Report:
    wire = {"kernel": kernel, "num_trials": 1, "timeout": 60, "target_precision": 0.5, "artifacts": forms}
    return run(Request.from_wire(wire | more), worker)


def torch(source: str) -> dict[str, Any]:
    return {"source_code": source, "kernel_type": "torch"}


def texts(outcome: Outcome) -> dict[str, str]:
    return {one.name: unpack(one.packed).decode() for one in outcome.listings or [] if isinstance(one, Listing)}


def reasons(outcome: Outcome) -> dict[Form, str]:
    return {one.format: one.reason for one in outcome.listings or [] if isinstance(one, NoListing)}


def test_a_raw_kernel_and_the_same_out_of_the_cache(worker: WorkerContext) -> None:
    first = judged(worker, RAW, "ptx", "sass", "ttir")
    again = judged(worker, RAW, "ptx", "sass", "ttir").outcome
    assert (first.outcome.build["compile_cache"], again.build["compile_cache"]) == ("miss", "hit")
    assert texts(first.outcome) == texts(again)
    assert ".entry" in texts(again)["scale.ptx"] and "EXIT" in texts(again)["scale.sass"]
    assert set(reasons(again)) == {Form.TTIR} and "type cuda" in reasons(again)[Form.TTIR]
    assert set(first.texts) == {"candidate/scale.ptx", "candidate/scale.sass"}
    body = first.body("j")["kernel_exec_result"]["artifacts"]
    assert [one["format"] for one in body] == ["ptx", "sass", "ttir"] and body[0]["bytes"] > 500
    # Of a job that was not asked, nothing is read: its build took them along all the same.
    assert judged(worker, RAW).outcome.listings is None


def test_both_sides_and_what_has_no_code_of_its_own(worker: WorkerContext) -> None:
    report = judged(worker, RAW, "ptx", reference=torch(RELU))
    assert report.reference is not None and set(report.texts) == {"candidate/scale.ptx"}
    assert "left no code of its own with ptx" in reasons(report.reference)[Form.PTX]
    uncompiled = judged(worker, torch("import nowhere"), "ptx", "sass").outcome
    assert uncompiled.status is Status.COMPILE_ERROR
    assert set(reasons(uncompiled).values()) == {"the kernel was not compiled"}


EXTENSION = '''
from torch.utils.cpp_extension import load_inline

cuda = """
__global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    twice<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>());
    return y;
}
"""
module = load_inline("twice_ext", ["torch::Tensor run(torch::Tensor x);"], [cuda], functions=["run"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x)
'''


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_an_extension_and_the_same_out_of_the_cache(worker: WorkerContext) -> None:
    kernel = {"source_code": EXTENSION, "kernel_type": "torch_cuda"}
    first, again = (judged(worker, kernel, "ptx", "sass", timeout=300).outcome for _ in range(2))
    assert (first.build["compile_cache"], again.build["compile_cache"]) == ("miss", "hit")
    assert texts(first) == texts(again) and set(texts(first)) == {"twice_ext.ptx", "twice_ext.sass"}
    assert "twice" in texts(first)["twice_ext.ptx"] and "STG" in texts(first)["twice_ext.sass"]


TRITON = """
import triton
import triton.language as tl

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

def run(x):
    y = torch.empty_like(x)
    add[(1,)](x, y, x.numel(), BLOCK=64)
    return y

def get_inputs():
    return [torch.randn(64)]
"""


def test_what_is_interpreted_was_never_compiled(worker: WorkerContext) -> None:
    kernel = {"source_code": TRITON, "kernel_type": "triton", "metadata": {"function_name": "run"}}
    found = judged(worker, kernel, "ttir", "sass").outcome
    assert found.status is Status.PASSED and texts(found) == {}
    assert all("a worker without a GPU" in reason for reason in reasons(found).values()) and len(reasons(found)) == 2


# What a submission writes where a compiler would: text for a terminal, a link to what is not its own, another name.
FORGED = (
    """
import json, os
from pathlib import Path
place = Path("triton/x")
place.mkdir(parents=True, exist_ok=True)
(place / "k <b>.json").write_text(json.dumps({"num_warps": 4, "num_stages": 1}))
(place / "k <b>.cubin").write_bytes(b"no machine code")
(place / "k <b>.ptx").write_bytes(b"\\x1b]0;mine\\x07 \\xc2\\x9b31m \\r\\xff" + os.getcwd().encode() + b"/kernel.py")
os.symlink("/etc/passwd", place / "k <b>.ttir") if not (place / "k <b>.ttir").is_symlink() else None
"""
    + RELU
)


def test_what_a_submission_wrote_itself_is_bounded_and_cleaned(worker: WorkerContext) -> None:
    found = judged(worker, torch(FORGED), "ptx", "ttir", "sass").outcome
    assert found.status is Status.PASSED, found.message
    ((name, text),) = texts(found).items()
    assert name == "k_b.ptx"
    control = [character for character in text if ord(character) < 32 or 127 <= ord(character) < 160]
    assert set(control) <= {"\n"}
    assert "kernel.py" in text and str(worker.folder) not in text
    assert "its file cannot be read" in reasons(found)[Form.TTIR] or "not there" in reasons(found)[Form.TTIR]
    assert "did not read the machine code" in reasons(found)[Form.SASS]


def test_of_what_triton_compiled_at_a_call_the_needs_are_told_unasked(worker: WorkerContext) -> None:
    code = base64.b64encode(compiled("sm_90a").cubin)  # Three kernels: as none of Triton's has, so no figures.
    one = base64.b64encode(nvrtc.compile_source(SCALE, ["-arch=sm_90a"], {}).cubin)
    source = f"""
import base64, json
from pathlib import Path
for name, cubin in (("one", {one!r}), ("three", {code!r})):
    place = Path("triton") / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "k.json").write_text(json.dumps({{"num_warps": 4, "num_stages": 3, "shared": 512}}))
    (place / "k.cubin").write_bytes(base64.b64decode(cubin))
{RELU}"""
    found = judged(worker, torch(source)).outcome
    assert found.status is Status.PASSED and found.listings is None
    first, second = sorted(found.build["kernels"], key=lambda each: "registers" not in each)
    assert (first["name"], first["num_warps"], first["shared_bytes"]) == ("k", 4, 512) and first["registers"] > 0
    assert "registers" not in second


CLOSED = "import os\nos.makedirs('triton', exist_ok=True)\nos.chmod('.', 0)\n" + RELU


def test_a_folder_that_was_closed_to_us_is_a_reason(worker: WorkerContext) -> None:
    found = judged(worker, torch(CLOSED), "ptx").outcome
    assert found.listings is not None and texts(found) == {} and set(reasons(found)) == {Form.PTX}


MANY = (
    """
import json, os
from pathlib import Path
for number in range(12):
    place = Path(f"triton/{number:02}")
    place.mkdir(parents=True, exist_ok=True)
    (place / "k.json").write_text(json.dumps({"num_warps": number, "num_stages": 1}))
    (place / "k.cubin").touch()
    (place / "k.ptx").write_bytes(os.urandom(200_000).hex().encode())
"""
    + RELU
)


def test_all_texts_of_a_kernel_together_are_bounded(worker: WorkerContext) -> None:
    found = judged(worker, torch(MANY), "ptx").outcome
    kept = [one for one in found.listings or [] if isinstance(one, Listing)]
    assert [one.name for one in kept[:3]] == ["k.ptx", "k-2.ptx", "k-3.ptx"]
    assert 0 < sum(len(one.packed) for one in kept) <= code_listings.MAX_PACKED_BYTES
    assert len(kept) < 12 and "ask for fewer artifacts" in reasons(found)[Form.PTX]


def test_a_builder_that_takes_too_long_is_a_reason(worker: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(worker, RAW)  # Of what is built already the only builder is the one that reads.
    forked = worker.session

    def stopped(folder: Path, *, gpu: bool, deadline: float, cancelled: Callable[[], bool]) -> Session:
        session = forked(folder, gpu=gpu, deadline=deadline, cancelled=cancelled)
        if not gpu:
            session.runner.freeze()
        return session

    monkeypatch.setattr(worker, "session", stopped)
    monkeypatch.setattr(code_listings, "READ_S", 0.2)
    found = judged(worker, RAW, "ptx").outcome
    assert found.status is Status.UNSUPPORTED
    assert reasons(found) == {Form.PTX: "reading it took more than 0.2 s"}
