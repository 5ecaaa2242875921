"""The backward pass of fake tensors, against autograd's engine on tensors that have content."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from backends.dry_run.fake_backward import run_backward, set_materialize_grads

Forward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, unused):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        return x * weight, x + 1

    @staticmethod
    def backward(ctx, of_product, of_sum):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        return of_product * weight + of_sum, (of_product * x).sum(0), None


class Named(torch.autograd.Function):
    """Its tensors come after, and between, arguments that are none; one needs no gradient."""

    @staticmethod
    def forward(ctx, name, x, fixed, factor, weight):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        return x * weight * factor + fixed

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        return None, gradient * weight * 2, gradient, None, (gradient * x * 2).sum(0)


FORWARDS: dict[str, Forward] = {
    "broadcast": lambda x, weight: x * weight,
    "a Function, transposed": lambda x, weight: Pair.apply(x, weight, 3)[0].t() * 2,
    "a Function with an output that is not used": lambda x, weight: Pair.apply(x * weight, weight, 3)[1].softmax(-1),
    "a Function with other arguments before its tensors": lambda x, weight: Named.apply(
        "scale", x * 3, torch.ones(16), 2, weight
    ),
    "a leaf that is reached twice": lambda x, weight: functional.relu(x * weight) @ weight + x.mean(),
    "half precision": lambda x, weight: (x.half() * weight.half()).float() + x,
    "in place, and a view": lambda x, weight: (x * 2).add_(weight).mul_(3)[:, ::2],
    "several outputs": lambda x, weight: torch.cat([x.t()[:4], x[:, :4]], 1).unbind(0)[1] * weight[:8],
}


@pytest.mark.parametrize("name", FORWARDS)
def test_its_gradients_are_the_engines(name: str) -> None:
    torch.manual_seed(0)
    x, weight, unreached = (torch.randn(*shape, requires_grad=True) for shape in ((4, 16), (16,), (3,)))
    output = FORWARDS[name](x, weight)
    cotangent = torch.randn_like(output)
    leaves = [x, weight, unreached]
    expected = torch.autograd.grad([output], leaves, [cotangent], retain_graph=True, allow_unused=True)
    found = run_backward([output], [cotangent], False, False, leaves)
    assert found[2] is None and expected[2] is None
    for actual, gradient in zip(found[:2], expected[:2], strict=True):
        assert actual is not None and torch.allclose(actual, gradient) and actual.stride() == gradient.stride()
    run_backward([output], [cotangent], False, False, [], accumulate_grad=True)
    assert x.grad is not None and torch.equal(x.grad, expected[0]) and unreached.grad is None


@pytest.mark.parametrize("zeros", [True, False])
def test_a_function_gets_zeros_or_none_as_it_chose(zeros: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd.function.FunctionCtx, "set_materialize_grads", set_materialize_grads)
    given: list[bool] = []

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.set_materialize_grads(zeros)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, of_double, of_triple):  # type: ignore[no-untyped-def]
            given.append(of_triple is None)
            return of_double * 2

    x = torch.ones(4, requires_grad=True)
    output = Two.apply(x)[0]
    run_backward([output], [torch.ones(4)], False, False, [x])
    torch.autograd.grad([output], [x], [torch.ones(4)])
    assert given == [not zeros] * 2
