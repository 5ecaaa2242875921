"""Kernels that rely on what all drawn sets of inputs share, and the same kernels where the sets do not share it."""

from __future__ import annotations

from typing import Any

import pytest

from domain.request import Request
from domain.result import Report, Status
from tasks.correctness import distribution_check
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all are tried within the usual time depends on what else the machine has to do."""
    monkeypatch.setattr(distribution_check, "BUDGET_S", 40.0)


SOURCE = """import torch
import torch.nn.functional as F
from torch import nn


class {name}(nn.Module):
    def forward(self, {parameters}):
        return {expression}


def get_inputs():
    {draw}
    return [{parameters}]
"""

MATRIX = "a = torch.randn(64, 64){}; b = torch.randn(64, 64)"
PRODUCT = "a @ b"
X = "x = torch.randn(64, 64); "


def judged(worker: WorkerContext, parameters: str, draw: str, reference: str, candidate: str) -> Report:
    sources = {
        "kernel": SOURCE.format(name="ModelNew", parameters=parameters, expression=candidate, draw=draw),
        "reference": SOURCE.format(name="Model", parameters=parameters, expression=reference, draw=draw),
    }
    kernels = {name: {"source_code": source, "kernel_type": "torch"} for name, source in sources.items()}
    return run(Request.from_wire(kernels | {"num_trials": 1, "timeout": 60}), worker)


# What the kernel relies on: its parameters, draws with and without it, the reference and the kernel.
KINDS: dict[str, tuple[str, str, str, str, str]] = {
    "a lower triangle": (
        "a, b", MATRIX.format(".tril()"), MATRIX.format(""), PRODUCT, "torch.cat([a[:32, :32] @ b[:32], a[32:] @ b])",
    ),
    "an upper triangle": (
        "a, b", MATRIX.format(".triu()"), MATRIX.format(".tril()"), PRODUCT,
        "torch.cat([a[:32] @ b, a[32:, 32:] @ b[32:]])",
    ),
    "a band": (
        "a, b", MATRIX.format(".triu(-1).tril(1)"), MATRIX.format(".triu(-2).tril(2)"), PRODUCT,
        "a.diagonal()[:, None] * b + F.pad(a.diagonal(-1)[:, None] * b[:-1], (0, 0, 1, 0))"
        " + F.pad(a.diagonal(1)[:, None] * b[1:], (0, 0, 0, 1))",
    ),
    "blocks": (
        "a, b", "a = torch.block_diag(torch.randn(32, 32), torch.randn(32, 32)); b = torch.randn(64, 64)",
        MATRIX.format(""), PRODUCT, "torch.cat([a[:32, :32] @ b[:32], a[32:, 32:] @ b[32:]])",
    ),
    "a diagonal": (
        "a, b", "a = torch.randn(64).diag(); b = torch.randn(64, 64)", MATRIX.format(".tril()"), PRODUCT,
        "a.diagonal()[:, None] * b",
    ),
    "a mask": (
        "x", "x = torch.randn(64, 64) * (torch.arange(64) % 2)", "x = torch.randn(64, 64)", "x.cumsum(0).sum(-1)",
        "x[:, 1::2].cumsum(0).sum(-1)",
    ),
    "symmetry": (
        "a, b", X + "a = x + x.T; b = torch.randn(64, 64)", MATRIX.format(""), PRODUCT, "a.T @ b",
    ),
    "antisymmetry": (
        "a, b", X + "a = x - x.T; b = torch.randn(64, 64)", MATRIX.format(""), PRODUCT, "-(a.T @ b)",
    ),
    "positive definiteness": (
        "a, b", X + "a = x @ x.T / 64 + torch.eye(64); b = torch.randn(64, 8)",
        X + "a = x + x.T; b = torch.randn(64, 8)",
        "torch.linalg.solve(a, b)", "torch.cholesky_solve(b, torch.linalg.cholesky_ex(a).L)",
    ),
    "rows that sum to one": (
        "a, b", "a = torch.softmax(torch.randn(64, 64), -1); b = torch.randn(64, 64)",
        "a = torch.rand(64, 64); b = torch.randn(64, 64)", PRODUCT, "(a / a.sum(-1, keepdim=True)) @ b",
    ),
    "columns that sum to one": (
        "a, b", "a = torch.softmax(torch.randn(64, 64), 0); b = torch.randn(64, 64)",
        "a = torch.rand(64, 64); b = torch.randn(64, 64)", "(a @ b).sum(0)", "b.sum(0)",
    ),
    "rows that sum to zero": (
        "x", "x = torch.randn(64, 64); x -= x.mean(-1, keepdim=True)", "x = torch.randn(64, 64) + 1",
        "F.layer_norm(x, (64,))", "x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()",
    ),
    "rows of one norm": (
        "a, b", "a, b = (F.normalize(torch.randn(64, 64), dim=-1) for _ in range(2))",
        "a, b = torch.randn(64, 64), torch.randn(64, 64)", "F.cosine_similarity(a[:, None], b[None], dim=-1)",
        "a @ b.T",
    ),
    "orthogonality": (
        "a, b", "a = torch.linalg.qr(torch.randn(64, 64))[0]; b = torch.randn(64, 8)",
        "a = torch.randn(64, 64) / 8; b = torch.randn(64, 8)", "torch.linalg.solve(a, b)", "a.mT @ b",
    ),
    "a sign": ("x", "x = torch.rand(64, 64) + 0.1", "x = torch.randn(64, 64)", "x.abs().sqrt()", "x.sqrt()"),
    "bounds": ("x", "x = torch.rand(64, 64) * 2 - 1", "x = torch.rand(64, 64) * 4 - 2", "x.clamp(-1, 1)", "x + 0"),
    "order": (
        "x", "x = torch.randn(64, 64).sort(-1).values", "x = torch.randn(64, 64)", "x.sort(-1).values[:, ::4]",
        "x[:, ::4] + 0",
    ),
    "a permutation": (
        "x, i", X + "i = torch.randperm(64)", X + "i = torch.randint(64, (64,))",
        "torch.zeros_like(x).index_add(0, i, x)", "x[i.argsort()]",
    ),
    "unique values": (
        "x, i", X + "i = torch.randperm(1000)[:64]", X + "i = torch.randint(1000, (64,)) // 10",
        "x.new_zeros(1000, 64).index_add(0, i, x)", "x.new_zeros(1000, 64).index_copy(0, i, x)",
    ),
    "a range of integers": (
        "i", "i = torch.randint(16, (64, 64))", "i = torch.randint(64, (64, 64))", "i % 16", "i + 0",
    ),
    "one-hot rows": (
        "a, b", "a = F.one_hot(torch.randint(64, (256,)), 64).float(); b = torch.randn(64, 64)",
        "a = torch.rand(256, 64); b = torch.randn(64, 64)", PRODUCT, "b[a.argmax(-1)]",
    ),
    "an equal input": (
        "a, b", X + "a, b = x, x.clone()", "a, b = torch.randn(64, 64), torch.randn(64, 64)", "a @ b.T", "a @ a.T",
    ),
    "a negated input": (
        "a, b", X + "a, b = x, -x", "a, b = torch.randn(64, 64), torch.randn(64, 64)", "a * b + a", "a - a * a",
    ),
    "a transposed input": (
        "a, b", X + "a, b = x, x.T.contiguous()", "a, b = torch.randn(64, 64), torch.randn(64, 64)", PRODUCT, "a @ a.T",
    ),
    "a positive part": (
        "a, b", X + "a, b = x, x.relu()", "a, b = torch.randn(64, 64), torch.randn(64, 64)", "a + (b > 0)",
        "a + (a > 0)",
    ),
    "a cumulative sum": (
        "a, b", X + "a, b = x, x.cumsum(-1)", "a, b = torch.randn(64, 64), torch.randn(64, 64)", "b - a",
        "a.cumsum(-1) - a",
    ),
    "a softmax": (
        "a, b", X + "a, b = x, x.softmax(-1)", X + "a, b = x, torch.randn(64, 64).softmax(-1)", "a * b * 64",
        "a * a.softmax(-1) * 64",
    ),
    "a normalised input": (
        "a, b", X + "a, b = x, F.normalize(x, dim=-1)", X + "a, b = x, F.normalize(torch.randn(64, 64), dim=-1)",
        "a @ b.T", "a @ F.normalize(a, dim=-1).T",
    ),
    "zeros in other places": (
        "a, b", "a = torch.randn(64, 64) * (torch.rand(64, 64) < 0.3); b = torch.randn(64, 64)", MATRIX.format(""),
        PRODUCT, "(lambda v, i: (a.gather(1, i)[..., None] * b[i]).sum(1))(*a.abs().topk(40, dim=-1))",
    ),
    "rows that sum to another number": (
        "a, b", "a = torch.softmax(torch.randn(64, 64), -1) * 2.5; b = torch.randn(64, 64)",
        "a = torch.rand(64, 64); b = torch.randn(64, 64)", PRODUCT, "(a / a.sum(-1, keepdim=True)) @ b * 2.5",
    ),
    "log-probabilities": (
        "x", "x = torch.randn(64, 4096).log_softmax(-1)", "x = torch.randn(64, 4096) - 9", "x.log_softmax(-1)", "x + 0",
    ),
    "images of mean zero": (
        "x", "x = F.layer_norm(torch.randn(8, 32, 32), (32, 32))", "x = torch.randn(8, 32, 32) + 1",
        "F.layer_norm(x, (32, 32))", "x + 0",
    ),
    "a largest magnitude": (
        "x", "x = torch.randn(64, 64); x /= x.abs().amax()", "x = torch.randn(64, 64)", "x / x.abs().amax()", "x + 0",
    ),
    "edges that are no loops": (
        "x, e", X + "a = torch.randint(64, (99,)); e = torch.stack([a, (a + torch.randint(1, 64, (99,))) % 64])",
        X + "e = torch.randint(8, (2, 99))", "(e[0] != e[1])[:, None] * x[e[0]]", "x[e[0]]",
    ),
    "rotations": (
        "r", "r = torch.linalg.qr(torch.randn(99, 3, 3))[0]; r = r * torch.linalg.det(r)[:, None, None]",
        "r = torch.linalg.qr(torch.randn(99, 3, 3))[0]; r[::2] *= -1", "r[:, 2] + 0",
        "torch.linalg.cross(r[:, 0], r[:, 1])",
    ),
    # Not found as such, but by the kernel's being wrong where elements are in other places.
    "a low rank": (
        "a, b", "a = torch.randn(64, 4) @ torch.randn(4, 64); b = torch.randn(64, 64)", MATRIX.format(""), PRODUCT,
        "(a[:, :4].double() @ (torch.linalg.lstsq(a[:, :4].double(), a.double()).solution @ b.double())).float()",
    ),
    "order along another dimension": (
        "x", "x = torch.randn(64, 64).sort(0).values", "x = torch.randn(64, 64)", "x.amax(0) - x.amin(0)",
        "x[-1] - x[0]",
    ),
    "a dominant diagonal": (
        "a, b", "a = torch.randn(64, 64) / 16 + 4 * torch.eye(64); b = torch.randn(64, 8)",
        "a = torch.randn(64, 64) / 4 + torch.eye(64); b = torch.randn(64, 8)", "torch.linalg.solve(a, b)",
        "(lambda d: sum([torch.linalg.matrix_power(torch.eye(64) - a / d, n) for n in range(40)]) @ (b / d))"
        "(a.diagonal()[:, None])",
    ),
    "padding at the end": (
        "t", "t = torch.randint(1, 99, (64, 64)) * (torch.arange(64) < torch.randint(1, 65, (64, 1)))",
        "t = torch.randint(1, 99, (64, 64)) * (torch.rand(64, 64) < 0.5)", "(t != 0).cumsum(-1) * (t != 0)",
        "(torch.arange(64) + 1) * (torch.arange(64) < (t != 0).sum(-1, keepdim=True))",
    ),
    "pointers to earlier elements": (
        "x, p", X + "p = (torch.rand(64) * torch.arange(64)).long()", X + "p = torch.randint(64, (64,))",
        "x[p.clamp(max=torch.arange(64))]", "x[p]",
    ),
    "unique along another dimension": (
        "x, i", X + "i = torch.rand(128, 64).topk(64, dim=0).indices", X + "i = torch.randint(128, (64, 64))",
        "x.new_zeros(128, 64).scatter_add(0, i, x)", "x.new_zeros(128, 64).scatter(0, i, x)",
    ),
    "offsets from lengths": (
        "x, n, o", X + "n = torch.randint(1, 4, (16,)); o = n.cumsum(0)",
        X + "n = torch.randint(1, 4, (16,)); o = torch.randint(1, 4, (16,)).cumsum(0)",
        "x.cumsum(0)[o - 1]", "x.cumsum(0)[n.cumsum(0) - 1]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_may_rely_on_what_all_sets_share(worker: WorkerContext, kind: str) -> None:
    parameters, draw, _, reference, candidate = KINDS[kind]
    report = judged(worker, parameters, draw, reference, candidate)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    found: dict[str, Any] = report.outcome.inputs["distributions"]
    assert found["checked"], found


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_kernel_is_wrong_where_the_sets_do_not_share_it(worker: WorkerContext, kind: str) -> None:
    parameters, _, draw, reference, candidate = KINDS[kind]
    report = judged(worker, parameters, draw, reference, candidate)
    assert report.outcome.status is Status.WRONG_RESULT, report.outcome


EVEN_SHARE = "torch.where((F.one_hot(i, 8).cumsum(0).gather(1, i[:, None]) <= 256), x * w[i], 0 * x)"
# As atomics do it: each term is added to what the row holds in memory.
IN_BFLOAT16 = (
    "(lambda rows: [rows[k].add_(row) for k, row in zip(i.tolist(), g.bfloat16())] and rows.float())"
    "(g.new_zeros(1024, 64, dtype=torch.bfloat16))"
)

# What holds for drawn sets by chance alone: parameters, draw, reference, a right and a wrong kernel, where it shows.
BY_CHANCE: dict[str, tuple[str, str, str, str, str, str]] = {
    "rows that are nearly even": (
        "a, b", "a = torch.softmax(torch.randn(64, 64) / 100, -1); b = torch.randn(64, 64)", PRODUCT,
        "(b.T @ a.T).T", "b.mean(0).expand(64, 64).contiguous()", "uneven",
    ),
    "a known mean": (
        "x", "x = torch.rand(16, 16384)", "x.mean(-1)", "x.double().mean(-1).float()", "x[:, 0] * 0 + 0.5", "uneven",
    ),
    "an even share of each index": (
        "i", "i = torch.randint(4, (65536,))", "torch.bincount(i, minlength=4) / 65536",
        "F.one_hot(i, 4).sum(0) / 65536", "torch.full((4,), 0.25)", "skewed indices",
    ),
    "room for twice the even share": (
        "x, w, i", "x, w, i = torch.randn(1024, 16), torch.randn(8, 16), torch.randint(8, (1024,))", "x * w[i]",
        "x * (F.one_hot(i, 8).float() @ w)", EVEN_SHARE, "skewed indices",
    ),
    "few terms a sum in bfloat16": (
        "g, i", "g, i = (torch.randn(2048, 64) + 1) / 10, torch.randint(1024, (2048,))",
        "g.new_zeros(1024, 64).index_add(0, i, g)", "F.one_hot(i, 1024).float().T @ g", IN_BFLOAT16, "skewed indices",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BY_CHANCE)
def test_what_drawn_sets_share_by_chance_is_no_structure(worker: WorkerContext, kind: str) -> None:
    parameters, draw, reference, right, wrong, where = BY_CHANCE[kind]
    report = judged(worker, parameters, draw, reference, right)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    report = judged(worker, parameters, draw, reference, wrong)
    assert report.outcome.status is Status.WRONG_RESULT, report.outcome.inputs["distributions"]
    assert f"Wrong on {where} inputs" in (report.outcome.message or "")
