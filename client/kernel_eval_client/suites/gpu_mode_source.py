"""What is put around a GPU MODE task's sources: its modules before them, an entry and `get_inputs` behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENTRY = "kernel_eval_entry"
_ENTRY_SOURCE = """

def _kernel_eval_filled(data):
    if isinstance(data, tuple) and len(data) == 5 and data[0] == "buffer to write to":
        _, make, shape, dtype, device = data
        return getattr(_kernel_eval_torch, make)(shape, dtype=getattr(_kernel_eval_torch, dtype), device=device)
    return type(data)(map(_kernel_eval_filled, data)) if isinstance(data, (tuple, list)) else data


def kernel_eval_entry(data):
    return %s(_kernel_eval_filled(data))


import torch as _kernel_eval_torch
"""
"""Buffers are made in the call: one that came with the inputs would be an input changed, which is wrong here."""

_GET_INPUTS = """

def get_inputs():
    import torch as _torch

    made = {}

    def kept(name, make):
        def making(*args, **more):
            tensor = make(*args, **more)
            made[id(tensor)] = (name, tensor)
            return tensor

        return making

    def told(data):
        if isinstance(data, _torch.Tensor) and id(data) in made and data._version == 0:
            device = data.device.type
            return "buffer to write to", made[id(data)][0], tuple(data.shape), str(data.dtype)[6:], device
        return type(data)(map(told, data)) if type(data) in (tuple, list) else data

    own = {name: getattr(_torch, name) for name in ("empty", "zeros", "empty_like", "zeros_like")}
    try:
        for name, make in own.items():
            setattr(_torch, name, kept(name.removesuffix("_like"), make))
        return [told(generate_input(**{%s}))]
    finally:
        for name, make in own.items():
            setattr(_torch, name, make)
"""
"""Nothing was written into what is of version 0: it is a buffer for the answer, not an input."""


def entry(function: str) -> str:
    """A function to call that gives this one its data, buffers among them."""
    return _ENTRY_SOURCE % function


def with_prelude(prelude: str, source: str) -> str:
    """The prelude in place of the first line where that is a comment, so that line numbers stay."""
    if not prelude:
        return source
    lines = source.splitlines()
    future = [number for number, line in enumerate(lines) if line.startswith("from __future__")]
    place = future[-1] + 1 if future else 0
    rest = lines[place + 1 :] if lines[place : place + 1] and lines[place].startswith("#") else lines[place:]
    return "\n".join([*lines[:place], prelude, *rest]) + "\n"


def inputs(case: Mapping[str, Any]) -> str:
    """`get_inputs` for one case. Its seed is drawn anew each time: with the task's own every set would be the same."""
    arguments = ", ".join(f"{name!r}: {value!r}" for name, value in case.items() if name != "seed")
    seed = "'seed': int(_torch.randint(1 << 31, (), device='cpu'))" if "seed" in case else ""
    return _GET_INPUTS % ", ".join(filter(None, (arguments, seed)))
