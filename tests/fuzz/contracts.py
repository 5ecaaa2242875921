"""IO contracts by the grammar of docs/api.md, some with one thing broken, around a kernel that takes anything."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import strategies as st

from domain.contract import INDEX_KINDS
from tests.api.test_fuzz import JSON, ODD, changed, places

DTYPES = [
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"),
    *("float8_e8m0fnu", "float4_e2m1fn_x2"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
]
NAMES = st.sampled_from(["x", "y", "n", "out", "BLOCK", "a", "b"])
SMALL = st.integers(0, 9)
SIZES = SMALL | st.sampled_from([1000, 2**20, 2**34, 2**62])
NUMBERS = st.integers(-3, 300) | st.floats(allow_nan=False, width=32) | st.sampled_from([2**63 - 1, -(2**63), 1e300])
EXPRESSIONS = st.recursive(
    NAMES | st.integers(0, 64).map(str),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(" ".join)
        | st.tuples(inner, inner).map(lambda both: f"cdiv({both[0]}, {both[1]})")
        | inner.map(lambda one: f"next_power_of_2({one})")
    ),
    max_leaves=4,
)
SIZE = st.integers(-1, 2048) | EXPRESSIONS


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


INITS = st.sampled_from(
    ["randn", "uniform", "randint", "zeros", "ones", "full", "arange", "empty", *INDEX_KINDS]
).flatmap(
    lambda kind: st.builds(
        lambda more: {"kind": kind, **more},
        _optional(
            **{name: NUMBERS for name in ("mean", "std", "low", "high", "fill_value", "start", "step")},
            seed=st.integers(0, 2**64),
            total=SMALL,
            of=NAMES,
        ),
    )
)
DATA = st.builds(
    lambda raw, dtype, shape: {"data_b64": base64.b64encode(raw).decode(), "dtype": dtype, "shape": shape},
    *(st.binary(max_size=64), st.sampled_from(DTYPES), st.lists(SMALL, max_size=3)),
)
TENSORS = _optional(
    shape=st.lists(SMALL, max_size=4) | st.lists(SIZES, max_size=3),
    dtype=st.sampled_from(DTYPES),
    strides=st.lists(st.integers(0, 64), max_size=3),
    init=INITS,
    data=DATA,
)
ROLES = st.sampled_from(["input", "output", "inout"])
ARGUMENTS = st.one_of(
    st.builds(
        lambda name, spec, role: {"name": name, "type": "tensor", "tensor_spec": spec, "role": role},
        *(NAMES, TENSORS, ROLES),
    ),
    st.builds(
        lambda name, kind, value, meta: {"name": name, "type": kind, "value": value, "is_meta": meta},
        *(
            NAMES,
            st.sampled_from(["int", "float", "bool", "str", "none"]),
            NUMBERS | st.booleans() | st.text(max_size=5),
        ),
        st.booleans(),
    ),
)
LAUNCHES = _optional(
    grid=SIZE | st.lists(SIZE, max_size=4) | _optional(x=SIZE, y=SIZE, z=SIZE),
    block=SIZE | st.lists(SIZE, max_size=3),
    shared_mem=st.integers(0, 1 << 18) | EXPRESSIONS,
    num_warps=st.sampled_from([1, 2, 3, 4, 8, 64]),
    num_stages=st.integers(-1, 70),
)
CONTRACTS = st.builds(
    lambda args, launch: {"args": args, **({"launch": launch} if launch else {})},
    *(st.lists(ARGUMENTS, max_size=5, unique_by=lambda arg: str(arg["name"])), LAUNCHES),
)
SOURCES = {
    "torch": "def kernel_fn(*args):\n    return [a * 1 for a in args if isinstance(a, torch.Tensor)]\n",
    "multi_kernel": "def entry(*args):\n    return [a * 1 for a in args if isinstance(a, torch.Tensor)]\n",
    "triton": "@triton.jit\ndef kernel(x, y, n, BLOCK: tl.constexpr):\n    tl.store(y, tl.load(x))\n",
    "cuda": "__global__ void kernel(float* x, float* y, int n) { y[0] = x[0]; }\n",
}


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A path and a body; about half of the contracts are as drawn, the others have one value replaced or removed."""

    def kernel() -> dict[str, Any]:
        kind = draw(st.sampled_from(sorted(SOURCES)))
        entry = {"metadata": {"entry_point": "entry"}} if kind == "multi_kernel" else {}
        return {"source_code": SOURCES[kind], "kernel_type": kind, "io": draw(CONTRACTS), **entry}

    both = draw(st.booleans())
    body = {"ref_kernel": kernel(), "custom_kernel": kernel()} if both else {"kernel": kernel()}
    body |= {"num_trials": 1, "timeout": 5}
    if draw(st.booleans()) and (found := places(body)):
        body = changed(body, draw(st.sampled_from(found)), draw(ODD | JSON), draw(st.booleans()))
    return "/compare" if both else "/evaluate", body
