"""Makes one tensor of a contract: its memory layout, and its content in the first and in every fresh input set."""

from __future__ import annotations

import base64
import zlib

import torch

from backends.dtypes import torch_dtype
from domain.contract import INDEX_KINDS, TensorData, TensorInit, TensorSpec
from domain.value import TensorRef
from sandbox.protocol.arena import stored_shape, write
from validation.compare.bitwise import identical
from validation.inputs import poison_fill
from validation.inputs.index_content import index_content
from validation.inputs.random_content import FIXED_KINDS, RANDOM_KINDS, fixed_content, random_content
from validation.seeds import derive_seed

UNSPECIFIED_KIND = "empty"
"""Content that nothing may rely on. It is the poison pattern, which reveals reliance on it and leaks no old memory."""
STRETCHES = 4
"""Number of different skews that a group's sets share."""
KINDS = RANDOM_KINDS | FIXED_KINDS | {UNSPECIFIED_KIND}
"""Those of a tensor by itself: `INDEX_KINDS` belong together."""


def is_random(spec: TensorSpec) -> bool:
    """Whether fresh sets re-draw this tensor. A tensor with neither `init` nor `data` is a `randn`."""
    return spec.data is None and (spec.init or TensorInit()).kind in RANDOM_KINDS.union(INDEX_KINDS)


def make_tensor(
    spec: TensorSpec,
    *,
    device: str,
    seed: int | None,
    position: int,
    fresh: int,
    parts: torch.Tensor | None = None,
) -> torch.Tensor:
    """The tensor of the `fresh`-th input set, on `device`. `parts` are the set's lengths of the argument `init.of`.

    Set 0 is the contract's own. Its seeds are used as they are, on that device's generator. A tensor without a seed
    gets one from the job's secret `seed` and the argument's `position`, so two kernels get equal inputs and two
    arguments differ. Later sets re-draw everything random from the secret, and skew every odd set
    (`RandomValues.mirror_up`). Data, zeros, ones, full and arange stay.

    Raises ValueError for a spec that cannot be made; memory errors are torch's own.
    """
    dtype = torch_dtype(spec.dtype)
    unspecified = spec.init is not None and spec.data is None and spec.init.kind == UNSPECIFIED_KIND
    if spec.strides is None and not unspecified:
        # Without gaps nothing needs poison; this path must be fast, because the device is held while thousands of sets
        # are drawn.
        content = _content(spec, spec.shape, device, seed, position, fresh, parts)
        if is_random(spec):
            return content.to(device, dtype)
        # Fixed content may be expanded: it can have strides of 0 even where torch calls it contiguous.
        tensor = torch.empty(spec.shape, dtype=dtype, device=device)
        write(tensor, content)
        return tensor
    tensor = allocate(spec, device)
    if unspecified:
        return tensor
    shape = stored_shape(tensor)
    write(tensor.as_strided(shape, tensor.stride()), _content(spec, shape, device, seed, position, fresh, parts))
    return tensor


def make_group(
    spec: TensorSpec,
    *,
    device: str,
    seed: int | None,
    position: int,
    group: int,
    size: int,
    parts: torch.Tensor | None = None,
) -> torch.Tensor:
    """The tensors of `size` fresh sets at once, [sets, ...]. Group 0 begins with set 1. `parts` as in `make_tensor`.

    They differ from `make_tensor`'s: the group shares one seed, and odd sets share a few skews. Drawn one by one, the
    small sets of a window would cost more device time than the window itself.
    """
    first = 1 + group * size
    odd = 1 - first % 2
    skewed = [
        (slice(index, None, 2 * STRETCHES), derive_seed(seed, first + index, position))
        for index in range(odd, min(odd + 2 * STRETCHES, size), 2)
    ]
    init, group_seed = spec.init or TensorInit(), derive_seed(seed, "group", group, position)
    shape = (size, *spec.shape)
    if init.kind in INDEX_KINDS:
        return index_content(init, shape, spec.dtype, group_seed, device, parts)
    return random_content(init, shape, spec.dtype, group_seed, device, skewed)


def allocate(spec: TensorSpec, device: str, *, finite: bool = False) -> torch.Tensor:
    """A tensor of that shape, dtype and strides whose memory, gaps included, holds the poison pattern.

    `finite` selects the pattern that is not NaN.

    Raises ValueError for strides that may put two elements in one place; stride 0 is allowed and repeats one element.
    """
    dtype = torch_dtype(spec.dtype)
    strides = spec.strides
    if strides is None:
        tensor = torch.empty(spec.shape, dtype=dtype, device=device)
        poison_fill.fill(tensor, finite=finite)
        return tensor
    _check_strides(spec.shape, strides)
    span = TensorRef(spec.dtype, spec.shape, strides).span // dtype.itemsize
    memory = torch.empty(span, dtype=dtype, device=device)
    poison_fill.fill(memory, finite=finite)
    return memory.as_strided(spec.shape, strides)


def _content(
    spec: TensorSpec,
    shape: tuple[int, ...],
    device: str,
    secret: int | None,
    position: int,
    fresh: int,
    parts: torch.Tensor | None,
) -> torch.Tensor:
    if spec.data is not None:
        return _unrepeated(_inline_tensor(spec.data), shape)
    init = spec.init or TensorInit()
    if init.kind in FIXED_KINDS:
        return _unrepeated(fixed_content(init, spec.shape, spec.dtype, device), shape)
    seed = init.seed if fresh == 0 and init.seed is not None else derive_seed(secret, fresh, position)
    if init.kind in INDEX_KINDS:
        return index_content(init, (1, *shape), spec.dtype, seed, device, parts)[0]
    skewed = [(slice(None), seed)] if fresh % 2 == 1 else []
    return random_content(init, (1, *shape), spec.dtype, seed, device, skewed)[0]


def _unrepeated(content: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The content without repetitions, if it has its own memory; ValueError when it varies along a dimension of stride
    0."""
    if content.shape == shape:
        return content
    unique = content[tuple(slice(0, size) for size in shape)]
    if not identical(unique.expand(content.shape), content):
        raise ValueError("the content varies along a dimension of stride 0, which holds one element")
    return unique


def _check_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if stride == 0 or size <= 1:
            continue
        if stride <= reach:
            raise ValueError(f"strides {list(strides)} may put two elements of {list(shape)} in one place")
        reach += (size - 1) * stride


def _inline_tensor(data: TensorData) -> torch.Tensor:
    """The contiguous host tensor that the data encode. Its schema let in only data of the bytes of its shape."""
    dtype = torch_dtype(data.dtype)
    raw = base64.b64decode(data.data_b64)
    if data.compress == "zlib":
        raw = zlib.decompress(raw)
    if not raw:
        return torch.empty(data.shape, dtype=dtype)
    octets = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    # A bool's memory may hold 0 and 1 only; any other byte means true.
    values = octets != 0 if dtype is torch.bool else octets.view(dtype)
    return values.reshape(data.shape)
