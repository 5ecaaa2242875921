"""One tensor of a contract: its memory layout, and its content in the first and in every fresh input set."""

from __future__ import annotations

import torch

from domain.contract import TensorInit, TensorSpec
from domain.value import TensorRef
from sandbox.protocol.arena import stored_shape
from validation.compare.bitwise import identical
from validation.dtypes import torch_dtype
from validation.inputs import poison_fill
from validation.inputs.inline_data import inline_tensor
from validation.inputs.random_content import FIXED_KINDS, RANDOM_KINDS, fixed_content, random_content
from validation.seeds import derived

UNSPECIFIED_KIND = "empty"
"""Content that nothing may rely on: it is the poison pattern, so that relying on it shows and no old memory leaks."""
STRETCHES = 4
"""Different ones that a group's sets are skewed by."""
KINDS = RANDOM_KINDS | FIXED_KINDS | {UNSPECIFIED_KIND}


def is_random(spec: TensorSpec) -> bool:
    """Whether fresh sets re-draw this tensor. A tensor with neither `init` nor `data` is a `randn`."""
    return spec.data is None and (spec.init or TensorInit()).kind in RANDOM_KINDS


def make_tensor(spec: TensorSpec, *, device: str, seed: int | None, position: int, fresh: int) -> torch.Tensor:
    """The tensor of the `fresh`-th input set, on `device`.

    Set 0 is the contract's own: its seeds are used as they are, on a generator of that device, and what has no seed
    gets one from the job's secret `seed` and the argument's `position`, so that two kernels agree and two arguments
    differ. In the sets after it everything random is re-drawn from the secret, and every odd set is skewed
    (`Drawn.mirror_up`); data, zeros, ones, full and arange stay.

    Raises ValueError for a spec that can't be made; memory errors are torch's own.
    """
    dtype = torch_dtype(spec.dtype)
    unspecified = spec.init is not None and spec.data is None and spec.init.kind == UNSPECIFIED_KIND
    if spec.strides is None and not unspecified:
        # Without gaps there is nothing to poison: thousands of sets are drawn while the device is held.
        content = _content(spec, spec.shape, device, seed, position, fresh)
        if is_random(spec):
            return content.to(device, dtype)
        # Fixed content may be expanded, with strides of 0 even where it is contiguous by torch's word.
        return torch.empty(spec.shape, dtype=dtype, device=device).copy_(content)
    tensor = allocate(spec, device)
    if unspecified:
        return tensor
    shape = stored_shape(tensor)
    tensor.as_strided(shape, tensor.stride()).copy_(_content(spec, shape, device, seed, position, fresh))
    return tensor


def make_group(
    spec: TensorSpec, *, device: str, seed: int | None, position: int, group: int, size: int
) -> torch.Tensor:
    """The tensors of so many fresh sets at once, [sets, ...]: of set 1 and those behind it, of the next ones, ...

    As those of `make_tensor`, but for one seed of all and a few stretches that the odd ones are skewed by in turn: by
    themselves, the small sets of a window cost the device more than the window does.
    """
    first = 1 + group * size
    odd = 1 - first % 2
    skewed = [
        (slice(place, None, 2 * STRETCHES), derived(seed, first + place, position))
        for place in range(odd, min(odd + 2 * STRETCHES, size), 2)
    ]
    init, own = spec.init or TensorInit(), derived(seed, "group", group, position)
    return random_content(init, (size, *spec.shape), spec.dtype, own, device, skewed)


def allocate(spec: TensorSpec, device: str, *, finite: bool = False) -> torch.Tensor:
    """A tensor of that shape, dtype and strides whose memory, gaps included, holds the poison pattern.

    `finite`: the one that is no NaN.

    Raises ValueError for strides that are negative, of another rank, or that may put two elements in one place;
    stride 0 is allowed and means that one element is repeated.
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
    spec: TensorSpec, shape: tuple[int, ...], device: str, secret: int | None, position: int, fresh: int
) -> torch.Tensor:
    if spec.data is not None:
        return _unrepeated(inline_tensor(spec.data), shape)
    init = spec.init or TensorInit()
    if init.kind in FIXED_KINDS:
        return _unrepeated(fixed_content(init, spec.shape, spec.dtype, device), shape)
    if init.kind not in RANDOM_KINDS:
        raise ValueError(f"unknown init kind {init.kind!r}; known are {', '.join(sorted(KINDS))}")
    seed = init.seed if fresh == 0 and init.seed is not None else derived(secret, fresh, position)
    skewed = [(slice(None), seed)] if fresh % 2 == 1 else []
    return random_content(init, (1, *shape), spec.dtype, seed, device, skewed)[0]


def _unrepeated(content: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The given content where it has memory of its own; ValueError when it varies along a dimension of stride 0."""
    if content.shape == shape:
        return content
    own = content[tuple(slice(0, size) for size in shape)]
    if not identical(own.expand(content.shape), content):
        raise ValueError("the content varies along a dimension of stride 0, which holds one element")
    return own


def _check_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    if len(strides) != len(shape):
        raise ValueError(f"{len(strides)} strides for {len(shape)} dimensions")
    if any(stride < 0 for stride in strides):
        raise ValueError(f"negative strides: {list(strides)}")
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if stride == 0 or size <= 1:
            continue
        if stride <= reach:
            raise ValueError(f"strides {list(strides)} may put two elements of {list(shape)} in one place")
        reach += (size - 1) * stride
