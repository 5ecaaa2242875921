"""Backward passes of fake tensors: autograd's own engine asks for the streams of a GPU that a builder does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

_LEAF = "AccumulateGrad"
Gradients = dict[int, torch.Tensor]


def run_backward(
    outputs: Sequence[torch.Tensor | GradientEdge],
    cotangents: Sequence[torch.Tensor | None],
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[torch.Tensor | GradientEdge],
    allow_unreachable: bool = True,
    accumulate_grad: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """Replaces what `torch.autograd.grad` and `Tensor.backward` call; calls no hooks, and frees no graph.

    Nodes run in this thread, newest first: each was made after those that its gradients go to.
    """
    pending: dict[Node, Gradients] = {}
    reached: dict[Node, Gradients] = {}

    def add(edge: Node | None, number: int, gradient: torch.Tensor | None) -> None:
        if edge is not None and gradient is not None:
            gradients = pending.setdefault(edge, {})
            gradients[number] = gradients[number] + gradient if number in gradients else gradient

    for output, cotangent in zip(outputs, cotangents, strict=True):
        add(*_edge(output), cotangent)
    edges = [_edge(tensor) for tensor in inputs]
    with torch.set_grad_enabled(create_graph):
        while pending:
            node = max(pending, key=lambda each: (not each.name().endswith(_LEAF), each._sequence_nr()))
            reached[node] = pending.pop(node)
            if node.name().endswith(_LEAF):
                if accumulate_grad:
                    _accumulate(node, reached[node])
                continue
            gradients = _called(node, reached[node])
            for (edge, number), gradient in zip(node.next_functions, gradients, strict=False):
                add(edge, number, _fitted(edge, number, gradient))
    return tuple(reached.get(node, {}).get(number) for node, number in edges)


def set_materialize_grads(ctx: Any, value: bool) -> None:
    """Replaces that of `torch.autograd.function.FunctionCtx`, whose choice cannot be read."""
    ctx.materialize_grads = ctx.takes_zeros = value


def _edge(tensor: torch.Tensor | GradientEdge) -> tuple[Node, int]:
    edge = tensor if isinstance(tensor, GradientEdge) else get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _called(node: Any, gradients: Gradients) -> Sequence[torch.Tensor | None]:
    """The gradients of a node's edges. A Function in Python gets zeros where it has none, unless it takes None."""
    forms, apply = node._input_metadata, getattr(node, "apply", None)
    numbers = range(len(forms))
    if apply is None:
        results = node(*(gradients.get(number) for number in numbers))
        return results if isinstance(results, tuple) else (results,)
    takes_zeros = getattr(node, "takes_zeros", True)
    lacking = (_zeros(forms[n]) if takes_zeros and n not in gradients else None for n in numbers)
    results = apply(*(gradients.get(n, zeros) for n, zeros in enumerate(lacking)))
    results = results if isinstance(results, tuple) else (results,)
    # It returns one for each argument, and only the tensors among these have edges.
    needed = iter([gradient for gradient, needs in zip(results, node.needs_input_grad, strict=False) if needs])
    return [None if edge is None else next(needed, None) for edge, _ in node.next_functions]


def _zeros(form: Any) -> torch.Tensor:
    return torch.zeros(form.shape, dtype=form.dtype, device=form.device)


def _fitted(node: Any, number: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
    """A gradient as the engine hands it on: summed where the forward broadcast, in the dtype of the forward."""
    if node is None or gradient is None:
        return None
    form = node._input_metadata[number]
    return gradient.sum_to_size(form.shape).to(form.dtype)


def _accumulate(leaf: Any, gradients: Gradients) -> None:
    variable, (gradient,) = leaf.variable, gradients.values()
    variable.grad = gradient if variable.grad is None else variable.grad + gradient
