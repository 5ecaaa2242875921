"""Derives the input shapes that a torch layer takes from its attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

Shape = tuple[int, ...]

BATCH = 256
SMALL_BATCH = 8
SEQUENCE = 128
PLANE_CHANNELS = 16

EXTENTS: dict[int, tuple[Shape, ...]] = {
    1: ((256,),),
    2: ((64, 64), (32, 32), (28, 28), (224, 224)),
    3: ((16, 32, 32),),
}
"""Sizes of a signal, an image and a volume; several images, because flattening fixes the size of what follows."""


def _rows(features: int) -> list[Shape]:
    return [(BATCH, features), (SMALL_BATCH, SEQUENCE, features)]


def _planes(channels: int, rank: int) -> list[Shape]:
    return [(SMALL_BATCH, channels, *extent) for extent in EXTENTS[rank]]


def _normalized(layer: Any) -> list[Shape]:
    return [(SMALL_BATCH, SEQUENCE, *layer.normalized_shape), (BATCH, *layer.normalized_shape)]


def _attention(layer: nn.MultiheadAttention) -> list[Shape]:
    return [(SMALL_BATCH, SEQUENCE, layer.embed_dim) if layer.batch_first else (SEQUENCE, SMALL_BATCH, layer.embed_dim)]


EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)

SHAPES: tuple[tuple[type | tuple[type, ...], Callable[[Any], list[Shape]]], ...] = (
    (nn.MultiheadAttention, _attention),
    (nn.Linear, lambda layer: _rows(layer.in_features)),
    (nn.modules.conv._ConvNd, lambda layer: _planes(layer.in_channels, len(layer.kernel_size))),
    ((nn.BatchNorm1d, nn.InstanceNorm1d), lambda layer: [(BATCH, layer.num_features), *_planes(layer.num_features, 1)]),
    ((nn.BatchNorm2d, nn.InstanceNorm2d), lambda layer: _planes(layer.num_features, 2)),
    ((nn.BatchNorm3d, nn.InstanceNorm3d), lambda layer: _planes(layer.num_features, 3)),
    ((nn.LayerNorm, nn.RMSNorm), _normalized),
    (nn.GroupNorm, lambda layer: [*_planes(layer.num_channels, 2), *_planes(layer.num_channels, 1)]),
    (nn.RNNBase, lambda layer: [(SMALL_BATCH, SEQUENCE, layer.input_size)]),
    (nn.RNNCellBase, lambda layer: [(BATCH, layer.input_size)]),
)


def layer_shapes(layer: nn.Module) -> list[Shape]:
    """Shapes that this layer takes, likeliest first; empty for one with unknown shapes and for containers."""
    for kind, shapes in SHAPES:
        if isinstance(layer, kind):
            return [shape for shape in shapes(layer) if 0 not in shape]
    # Pooling, dropout, shuffling have no sizes of their own, but MaxPool2d works on images.
    suffix = type(layer).__name__[-2:]
    if type(layer).__module__.startswith("torch.nn.") and suffix in ("1d", "2d", "3d"):
        return _planes(PLANE_CHANNELS, int(suffix[0]))
    return []


def weight_shapes(module: nn.Module) -> list[Shape]:
    """Shapes that suit weights which modules hold directly, outside of torch's layers."""
    shapes: list[Shape] = []
    for holder in module.modules():
        if not layer_shapes(holder):
            for weight in holder.parameters(recurse=False):
                if weight.dim() in (1, 2):
                    shapes += [shape for size in weight.shape for shape in _rows(size)]
                elif weight.dim() in (3, 4, 5):
                    shapes += _planes(weight.shape[1], weight.dim() - 2)[:1]
    return shapes


def embedding_rows(module: nn.Module) -> int | None:
    """The rows of the smallest embedding, if an embedding is the first layer with known inputs; else None."""
    sized_layers = [layer for layer in module.modules() if isinstance(layer, EMBEDDINGS) or layer_shapes(layer)]
    if not sized_layers or not isinstance(sized_layers[0], EMBEDDINGS):
        return None
    return min(layer.num_embeddings for layer in sized_layers if isinstance(layer, EMBEDDINGS))


def tower_inputs(module: nn.Module) -> list[tuple[Shape, int | None]]:
    """For each child module, the input of its first layer with known inputs; embeddings take indices and add their
    rows.

    Suits a module that passes each of its inputs to another child. A bilinear layer takes two.
    """
    inputs: list[tuple[Shape, int | None]] = []
    for layer in (_first_with_inputs(child) for child in module.children()):
        match layer:
            case nn.Bilinear():
                inputs += [((BATCH, layer.in1_features), None), ((BATCH, layer.in2_features), None)]
            case nn.Embedding() | nn.EmbeddingBag():
                inputs.append(((BATCH,), layer.num_embeddings))
            case nn.Module():
                inputs.append((layer_shapes(layer)[0], None))
    return inputs


def _first_with_inputs(module: nn.Module) -> nn.Module | None:
    kinds = (nn.Bilinear, *EMBEDDINGS)
    return next((layer for layer in module.modules() if isinstance(layer, kinds) or layer_shapes(layer)), None)


def index_shapes(rows: int = SEQUENCE) -> list[Shape]:
    """Shapes for indices; no sequence longer than `rows`, which may be an embedding of positions."""
    return [(SMALL_BATCH, min(SEQUENCE, rows)), (BATCH,)]
