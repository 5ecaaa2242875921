"""What is put around a GPU MODE task's sources: its modules before them, an entry and `get_inputs` behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENTRY = "kernel_eval_entry"
REFERENCE = "reference"
"""The name of the reference as a module: a submission has it by that one, where the reference's own source is none."""
_ENTRY_SOURCE = """

def _kernel_eval_buffer(make, shape, dtype, device):
    return getattr(_kernel_eval_torch, make)(shape, dtype=getattr(_kernel_eval_torch, dtype), device=device)


def _kernel_eval_class(module, name):
    import sys

    return getattr(sys.modules[module], name) if module in sys.modules else globals()[name]


def _kernel_eval_named_tuple(module, name, values):
    return _kernel_eval_class(module, name)._make(map(_kernel_eval_filled, values))


def _kernel_eval_dataclass(module, name, values):
    kind = _kernel_eval_class(module, name)
    data = object.__new__(kind)
    for member, value in values.items():
        object.__setattr__(data, member, _kernel_eval_filled(value))
    return data


def _kernel_eval_dtype(name):
    return getattr(_kernel_eval_torch, name)


_kernel_eval_made = {
    "buffer to write to": _kernel_eval_buffer,
    "named tuple": _kernel_eval_named_tuple,
    "dataclass": _kernel_eval_dataclass,
    "dtype": _kernel_eval_dtype,
}


def _kernel_eval_filled(data):
    if isinstance(data, tuple) and data and isinstance(data[0], str) and data[0] in _kernel_eval_made:
        return _kernel_eval_made[data[0]](*data[1:])
    if isinstance(data, dict):
        return {name: _kernel_eval_filled(value) for name, value in data.items()}
    return type(data)(map(_kernel_eval_filled, data)) if isinstance(data, (tuple, list)) else data


def kernel_eval_entry(data):
    return %s(_kernel_eval_filled(data))


import torch as _kernel_eval_torch
"""
"""Buffers are made in the call: one that came with the inputs would be an input changed, which is wrong here. What does
not cross between processes, named tuples, dataclasses and dtypes, comes by name and is made again."""

_GET_INPUTS = """

def get_inputs():
    import dataclasses as _dataclasses
    import torch as _torch

    made = {}

    def kept(name, make):
        def making(*args, **more):
            tensor = make(*args, **more)
            made[id(tensor)] = (name, tensor)
            return tensor

        return making

    def named(kind):
        if kind.__qualname__ != kind.__name__:
            raise TypeError(f"the data holds a {kind.__qualname__}: only a class at a module's top can be made again")
        return "%s" if kind.__module__ == __name__ else kind.__module__, kind.__name__

    def told(data):
        if isinstance(data, _torch.Tensor) and id(data) in made and data._version == 0:
            device = data.device.type
            return "buffer to write to", made[id(data)][0], tuple(data.shape), str(data.dtype)[6:], device
        if isinstance(data, _torch.dtype):
            return "dtype", str(data)[6:]
        if isinstance(data, tuple) and hasattr(data, "_fields"):
            return "named tuple", *named(type(data)), [told(each) for each in data]
        if _dataclasses.is_dataclass(data) and not isinstance(data, type):
            fields = {field.name: getattr(data, field.name) for field in _dataclasses.fields(data)}
            return "dataclass", *named(type(data)), told({**fields, **getattr(data, "__dict__", {})})
        if isinstance(data, dict):
            return {name: told(value) for name, value in data.items()}
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


def inputs(case: Mapping[str, Any]) -> str:
    """`get_inputs` for one case. Its seed is drawn anew each time: with the task's own every set would be the same."""
    arguments = ", ".join(f"{name!r}: {value!r}" for name, value in case.items() if name != "seed")
    seed = "'seed': int(_torch.randint(1 << 31, (), device='cpu'))" if "seed" in case else ""
    return _GET_INPUTS % (REFERENCE, ", ".join(filter(None, (arguments, seed))))
