"""Products in low precision of any size: references, right candidates and ones that accumulate in bfloat16."""

from __future__ import annotations

from typing import Any

from tests.tasks.judging import kernel

FLOAT8 = """
def get_inputs():
    x = (torch.rand({m}, {k}) * 8 - 4).to(torch.float8_e4m3fn)
    w = (torch.randn({n}, {k}) * 100).to(torch.float8_e4m3fn)
    return [x, w, torch.rand({n}) * 4e-5 + 1.8e-4]
"""
"""Operands over the whole range of float8, and a scale for each column of the output, [n], whose rms is 3 at a length
of 4096."""
INT8 = """
def get_inputs():
    x, w = (torch.randint(-128, 128, (rows, {k}), dtype=torch.int8) for rows in ({m}, {n}))
    return [x, w, torch.rand({n}) * 1e-4 + 1e-5]
"""
BLOCKS = """
def get_inputs():
    x, w = (torch.randn(rows, {k}).to(torch.float8_e4m3fn) for rows in ({m}, {n}))
    sx, sw = (torch.exp2(torch.randint(-3, 4, (rows, {k} // 32)).float()) for rows in ({m}, {n}))
    return [x, w, sx * {k} ** -0.5, sw]
"""
"""Operands with a scale, a power of two, for every 32 elements along the length, as MXFP8 has."""

IN_BFLOAT16 = "((x.to(torch.bfloat16) @ w.to(torch.bfloat16).T).float() * s).to(torch.bfloat16)"
SCALED_BLOCKS = "(x.float().unflatten(1, (-1, 32)) * sx[..., None]).flatten(1)"
OTHER_BLOCKS = SCALED_BLOCKS.replace("x.", "w.").replace("sx[", "sw[")
PIECES = """
        x, w = x.to(torch.bfloat16), w.to(torch.bfloat16)
        y = torch.zeros(len(x), len(w), dtype=torch.bfloat16, device=x.device)
        for k in range(0, x.shape[1], 128):
            y += x[:, k:k + 128] @ w[:, k:k + 128].T
        return (y.float() * s).to(torch.bfloat16)
"""
"""A product that adds 128 terms at once to a sum in bfloat16."""

RIGHT: dict[str, tuple[str, str, str, str]] = {
    "float8": (
        FLOAT8,
        "x, w, s",
        IN_BFLOAT16,
        "torch._scaled_mm(x, w.T, torch.ones((), device=x.device), torch.ones((), device=x.device),"
        " out_dtype=torch.float32, use_fast_accum=True).mul_(s).to(torch.bfloat16)",
    ),
    "int8": (
        INT8,
        "x, w, s",
        "((x.float() @ w.float().T) * s).to(torch.bfloat16)",
        "(torch._int_mm(x, w.T).float() * s).to(torch.bfloat16)",
    ),
    "blocks": (
        BLOCKS,
        "x, w, sx, sw",
        f"({SCALED_BLOCKS} @ {OTHER_BLOCKS}.T).to(torch.bfloat16)",
        f"({SCALED_BLOCKS}).to(torch.bfloat16) @ ({OTHER_BLOCKS}).to(torch.bfloat16).T",
    ),
}
"""By name: inputs, parameters, and the expressions of the reference and of a right candidate."""


def sources(name: str, m: int, n: int, k: int, *, right: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """A reference and a candidate of that kind whose product is [m, k] times [k, n]."""
    inputs, parameters, expected, actual = RIGHT[name]
    body = f"        return {actual}\n" if right else PIECES
    model = "\nclass {}(nn.Module):\n    def forward(self, {}):\n{}"
    reference = model.format("Model", parameters, f"        return {expected}\n") + inputs.format(m=m, n=n, k=k)
    return kernel(reference), kernel(model.format("ModelNew", parameters, body))
