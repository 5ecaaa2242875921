"""The code that follows a GPU MODE task's sources: an entry that the service can call, and `get_inputs`."""

from __future__ import annotations

ENTRY, REFERENCE_ENTRY = "kernel_eval_entry", "kernel_eval_like_buffer"
REFERENCE = "reference"
"""The module name under which a submission imports the reference."""
SENT_AS_BYTES = ("float4_e2m1fn_x2", "float8_e4m3fnuz", "float8_e5m2fnuz")
"""Dtypes that the service does not know. `float8_e8m0fnu` is one that it knows."""
_ENTRY_SOURCE = """

def _kernel_eval_buffer(make, shape, dtype, device):
    return getattr(_kernel_eval_torch, make)(shape, dtype=getattr(_kernel_eval_torch, dtype), device=device)


def _kernel_eval_class(module, name):
    import sys

    return getattr(sys.modules[module], name) if module in sys.modules else globals()[name]


def _kernel_eval_named_tuple(module, name, values):
    return _kernel_eval_class(module, name)._make(map(_kernel_eval_decode, values))


def _kernel_eval_dataclass(module, name, values):
    kind = _kernel_eval_class(module, name)
    data = object.__new__(kind)
    for member, value in values.items():
        object.__setattr__(data, member, _kernel_eval_decode(value))
    return data


def _kernel_eval_dtype(name):
    return getattr(_kernel_eval_torch, name)


def _kernel_eval_bytes(dtype, content):
    return content.view(_kernel_eval_dtype(dtype))


_kernel_eval_constructors = {
    "buffer to write to": _kernel_eval_buffer,
    "named tuple": _kernel_eval_named_tuple,
    "dataclass": _kernel_eval_dataclass,
    "dtype": _kernel_eval_dtype,
    "bytes of": _kernel_eval_bytes,
}


def _kernel_eval_decode(data):
    if isinstance(data, tuple) and data and isinstance(data[0], str) and data[0] in _kernel_eval_constructors:
        return _kernel_eval_constructors[data[0]](*data[1:])
    if isinstance(data, dict):
        return {name: _kernel_eval_decode(value) for name, value in data.items()}
    return type(data)(map(_kernel_eval_decode, data)) if isinstance(data, (tuple, list)) else data


def kernel_eval_entry(data):
    return %s(_kernel_eval_decode(data))


import torch as _kernel_eval_torch
"""
"""Each call allocates its buffers: a kernel that wrote to a buffer among the inputs would get the verdict for changed
inputs. Named tuples, dataclasses and dtypes cannot be sent to the runner's process: `get_inputs` sends their names, and
this code constructs them again."""

_GET_INPUTS = """

def get_inputs(**arguments):
    import dataclasses as _dataclasses
    import torch as _torch

    buffers = {}

    def recording(name, make):
        def allocate(*args, **more):
            tensor = make(*args, **more)
            buffers[id(tensor)] = (name, tensor)
            return tensor

        return allocate

    def name_of(kind):
        if kind.__qualname__ != kind.__name__:
            raise TypeError(f"the data holds a {kind.__qualname__}; move its class to the top of a module")
        return "%s" if kind.__module__ == __name__ else kind.__module__, kind.__name__

    def encode(data):
        if isinstance(data, _torch.Tensor) and id(data) in buffers and data._version == 0:
            device = data.device.type
            return "buffer to write to", buffers[id(data)][0], tuple(data.shape), str(data.dtype)[6:], device
        if isinstance(data, _torch.Tensor) and str(data.dtype)[6:] in %r:
            return "bytes of", str(data.dtype)[6:], data.view(_torch.uint8)
        if isinstance(data, _torch.dtype):
            return "dtype", str(data)[6:]
        if isinstance(data, tuple) and hasattr(data, "_fields"):
            return "named tuple", *name_of(type(data)), [encode(value) for value in data]
        if _dataclasses.is_dataclass(data) and not isinstance(data, type):
            fields = {field.name: getattr(data, field.name) for field in _dataclasses.fields(data)}
            return "dataclass", *name_of(type(data)), encode({**fields, **getattr(data, "__dict__", {})})
        if isinstance(data, dict):
            return {name: encode(value) for name, value in data.items()}
        return type(data)(map(encode, data)) if type(data) in (tuple, list) else data

    allocators = {name: getattr(_torch, name) for name in ("empty", "zeros", "empty_like", "zeros_like")}
    try:
        for name, make in allocators.items():
            setattr(_torch, name, recording(name.removesuffix("_like"), make))
        if "seed" in arguments:
            arguments["seed"] = int(_torch.randint(1 << 31, (), device="cpu"))
        return [encode(generate_input(**arguments))]
    finally:
        for name, make in allocators.items():
            setattr(_torch, name, make)
"""
"""A tensor of version 0 was allocated and never written to: it is a buffer for the output and no input."""


_LIKE_BUFFER = """

def _kernel_eval_buffers(data):
    if isinstance(data, tuple) and data and isinstance(data[0], str) and data[0] == "buffer to write to":
        yield data[2], _kernel_eval_dtype(data[3])
    elif isinstance(data, (dict, tuple, list)):
        for value in data.values() if isinstance(data, dict) else data:
            yield from _kernel_eval_buffers(value)


def kernel_eval_like_buffer(data):
    output = kernel_eval_entry(data)
    dtypes = {
        dtype for shape, dtype in _kernel_eval_buffers(data)
        if isinstance(output, _kernel_eval_torch.Tensor) and tuple(output.shape) == tuple(shape)
    }
    return output.to(dtypes.pop()) if len(dtypes) == 1 else output
"""
"""A task's check ignores dtypes, and the service does not: a reference that sums in float64 may return that, where its
submissions fill a buffer of float32."""


def entry(function: str) -> str:
    """The source of `kernel_eval_entry`, which decodes the data and calls `function` with it."""
    return _ENTRY_SOURCE % function


def reference_entry(function: str) -> str:
    """The same, and `kernel_eval_like_buffer`, whose output has the dtype of the data's buffer for it."""
    return entry(function) + _LIKE_BUFFER


def inputs() -> str:
    """The source of `get_inputs`, which takes a case's arguments.

    Each call draws a new seed where the case has one; the task's own would repeat one set.
    """
    return _GET_INPUTS % (REFERENCE, SENT_AS_BYTES)
