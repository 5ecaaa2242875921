"""What several drawn sets share is found, and sets varied within it share it too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

from validation.inputs.structure import properties, variations
from validation.inputs.structure.input_structure import InputStructure, describe, find_structure, fits
from validation.inputs.structure.variations import Variation, shuffled, vary, with_relations

N = 96
Draw = Callable[[], torch.Tensor]


def drawn(draw: Callable[[], Sequence[torch.Tensor]]) -> list[Sequence[torch.Tensor]]:
    torch.manual_seed(0)
    return [draw() for _ in range(3)]


def varied(structure: InputStructure, first: Sequence[torch.Tensor], variation: Variation) -> list[torch.Tensor]:
    targets = {one.target for one in structure.relations}
    changed = [
        tensor if number in targets else vary(structure.tensors[number], tensor, variation, number)
        for number, tensor in enumerate(first)
    ]
    return with_relations(structure, first, changed)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def symmetric() -> torch.Tensor:
    matrix = normal(N, N)
    return matrix + matrix.T


def gram() -> torch.Tensor:
    matrix = normal(N, N)
    return matrix @ matrix.T / N


def orthonormal() -> torch.Tensor:
    return torch.linalg.qr(normal(N, 32))[0]


def causal() -> torch.Tensor:
    return normal(N, N).masked_fill(torch.ones(N, N).triu(1) > 0, -torch.inf).softmax(-1)


FLOATS: list[tuple[Draw, str, Callable[[torch.Tensor], bool]]] = [
    (lambda: normal(N, N), "", lambda x: bool((x != 0).all())),
    (lambda: normal(2, N, N).tril(), "lower triangular", lambda x: torch.equal(x, x.tril())),
    (lambda: normal(N, N).triu(1), "upper triangular", lambda x: torch.equal(x, x.triu(1))),
    (lambda: normal(N, N).tril(2).triu(-1), "banded", lambda x: torch.equal(x, x.tril(2).triu(-1))),
    (lambda: normal(N).diag(), "symmetric, diagonal", lambda x: torch.equal(x, x.diagonal().diag())),
    (lambda: normal(N, N).tril(-1) + torch.eye(N), "lower triangular", lambda x: bool((x.diagonal() == 1).all())),
    (lambda: normal(N, N) * (torch.arange(N) % 2), "the same zeros", lambda x: not x[:, ::2].any()),
    (lambda: normal(N, N).relu(), "zeros", lambda x: bool((x >= 0).all())),
    (lambda: normal(N, N) * (torch.rand(N, 1) < 0.5), "zeros", lambda x: bool((x == 0).all(-1).any())),
    (
        lambda: normal(N, N).log_softmax(-1),
        "logarithm of the sum of exponentials of 0 along dimension -1",
        lambda x: bool((x < 0).all() and x.amax() > -0.05),
    ),
    (
        lambda: F.normalize(torch.rand(N, 8), p=1, dim=-1) * 2.5,
        "sum of 2.5 along dimension -1",
        lambda x: bool((x > 0).all() and x.amax() > 2.4),
    ),
    (lambda: F.normalize(normal(N, N), p=1, dim=-1), "absolute sum of 1 along dimension -1", lambda x: True),
    (
        lambda: F.normalize(normal(N, N), p=math.inf, dim=-1),
        "largest magnitude of 1 along dimension -1",
        lambda x: bool((x.abs().amax(-1) == 1).all()),
    ),
    (
        lambda: F.normalize(normal(N, N).flatten(), p=math.inf, dim=0).view(N, N),
        "1 over the last 2 dimensions",
        lambda x: float(x.abs().amax()) == 1,
    ),
    (
        lambda: F.normalize(normal(N, 4, 9).flatten(1)).view(N, 4, 3, 3),
        "norm of 1 over the last 3 dimensions",
        lambda x: torch.allclose(x.flatten(1).norm(dim=1), torch.ones(N)),
    ),
    (
        lambda: torch.rand(N * N).div_(N).softmax(0).view(N, N),
        "sum of 1 over the last 2 dimensions",
        lambda x: bool((x > 0).all()),
    ),
    (symmetric, "symmetric", lambda x: torch.equal(x, x.T)),
    (lambda: torch.block_diag(normal(48, 48), normal(48, 48)), "banded", lambda x: not x[:48, 48:].any()),
    (gram, "symmetric", lambda x: bool(torch.linalg.eigvalsh(x.double()).amin() > -1e-5)),
    (lambda: normal(N, N).softmax(-1), "sum of 1 along dimension -1", lambda x: bool((x > 0).all())),
    (lambda: normal(4, N, 8).softmax(1).bfloat16(), "sum of 1 along dimension -2", lambda x: bool((x > 0).all())),
    (causal, "sum of 1 along dimension -1, lower triangular", lambda x: torch.equal(x, x.tril())),
    (lambda: F.normalize(normal(N, N), dim=-1), "norm of 1 along dimension -1", lambda x: True),
    (
        lambda: F.normalize(normal(N, 4, 16), dim=-1).flatten(1),
        "norm of 1 along dimension -1 in groups of 16",
        lambda x: torch.allclose(x.view(N, 4, 16).norm(dim=-1), torch.ones(N, 4)),
    ),
    (
        lambda: normal(N, 6, 8).softmax(-1).flatten(1),
        "sum of 1 along dimension -1 in groups of 8",
        lambda x: torch.allclose(x.view(N, 6, 8).sum(-1), torch.ones(N, 6)),
    ),
    (orthonormal, "orthonormal", lambda x: torch.allclose(x.T @ x, torch.eye(32), atol=1e-5)),
    (lambda: normal(N, N).sort().values, "ascending rows", lambda x: bool((x.diff() >= 0).all())),
    (lambda: torch.rand(N, N) + 0.5, "", lambda x: bool(((x >= 0.5) & (x <= 1.5)).all())),
    (lambda: normal(N, N).T, "", lambda x: x.stride() == (1, N)),
    (lambda: normal(N, 1).expand(N, N), "ascending rows, descending rows", lambda x: x.stride() == (1, 0)),
    (lambda: normal(N, N).half() * 1e-4, "", lambda x: bool((x != 0).float().mean() > 0.9)),
]


@pytest.mark.parametrize(
    ("draw", "words", "kept"), FLOATS, ids=[words or str(i) for i, (_, words, _) in enumerate(FLOATS)]
)
def test_varied_values_keep_what_was_found(draw: Draw, words: str, kept: Callable[[torch.Tensor], bool]) -> None:
    sets = drawn(lambda: [draw()])
    structure = find_structure(sets)
    (one,), (first,) = structure.tensors, sets[0]
    assert words in describe(one, first) and bool(words) == bool(describe(one, first))
    (made,) = varied(structure, sets[0], Variation.VALUES)
    assert not torch.equal(made, first) and fits(one, first, made) and kept(made)
    assert (made.shape, made.dtype) == (first.shape, first.dtype)


def test_of_rotations_other_rotations_are_made() -> None:
    def draw() -> list[torch.Tensor]:
        turns = torch.linalg.qr(normal(N, 3, 3))[0]
        return [turns * torch.linalg.det(turns).sign()[:, None, None]]

    sets = drawn(draw)
    structure = find_structure(sets)
    for seed in range(8):
        made = vary(structure.tensors[0], sets[0][0], Variation.VALUES, seed)
        assert torch.allclose(torch.linalg.det(made), torch.ones(N), atol=1e-5)


def test_shuffled_elements_keep_what_was_found_and_lose_everything_else() -> None:
    def draw() -> list[torch.Tensor]:
        return [normal(N, N).tril(), normal(N, N).sort(0).values, normal(N, N).softmax(-1), torch.randperm(N)]

    sets = drawn(draw)
    structures = find_structure(sets).tensors
    triangle, columns, rows, order = (shuffled(*pair, 0) for pair in zip(structures, sets[0], strict=True))
    assert torch.equal(triangle, triangle.tril()) and not torch.equal(triangle, sets[0][0])
    assert bool((columns.diff(dim=0) < 0).any())
    assert torch.equal(rows[rows[:, 0].argsort()], sets[0][2][sets[0][2][:, 0].argsort()])
    assert torch.equal(order.sort().values, torch.arange(N)) and not torch.equal(order, sets[0][3])
    assert [
        torch.equal(one.flatten().sort().values, other.flatten().sort().values)
        for one, other in zip((triangle, columns), sets[0], strict=False)
    ] == [True, True]


def test_elements_beyond_the_first_sets_are_shuffled_too() -> None:
    (structure,) = find_structure(drawn(lambda: [normal(N, N).sort(0).values])).tensors
    further = 9 * normal(N, N).sort(0).values
    assert bool((shuffled(structure, further, 0).diff(dim=0) < 0).any())


def test_shuffled_elements_leave_zeros_where_they_are() -> None:
    sets = drawn(lambda: [normal(N, N) * (torch.arange(N) < torch.randint(N // 4, N, (N, 1)))])
    (structure,) = find_structure(sets).tensors
    moved = shuffled(structure, sets[0][0], 0)
    assert torch.equal(moved == 0, sets[0][0] == 0) and not torch.equal(moved, sets[0][0])


def test_rows_that_sum_to_one_get_other_extremes() -> None:
    sets = drawn(lambda: [normal(N, N).softmax(-1)])
    (made,) = varied(find_structure(sets), sets[0], Variation.VALUES)
    largest = made.amax(-1)
    assert float(largest.amax()) > 0.95 and float(largest.amin()) < 0.03 and float(sets[0][0].amax()) < 0.5


WHOLE: list[tuple[Draw, Callable[[torch.Tensor], bool]]] = [
    (lambda: torch.randint(1000, (64, 64)), lambda x: int(x.flatten().bincount().amax()) > 200),
    (lambda: torch.randperm(512), lambda x: torch.equal(x.sort().values, torch.arange(512))),
    (lambda: torch.randperm(4096)[:512], lambda x: x.unique().numel() == 512),
    (lambda: torch.randperm(512).reshape(16, 32), lambda x: x.unique().numel() == 512),
    (lambda: normal(512, 64).topk(4).indices, lambda x: bool((x.sort(-1).values.diff() > 0).all())),
    (lambda: F.one_hot(torch.randint(16, (256,)), 16),
     lambda x: bool((x.sum(-1) == 1).all() and x.sum(0).amax() > 40)),
    (lambda: torch.eye(64)[torch.randperm(64)], lambda x: bool((x.sum(0) == 1).all() and (x.sum(1) == 1).all())),
    (lambda: F.pad(torch.randint(100, (63,)).sort().values, (1, 1)).index_fill(0, torch.tensor(64), 100),
     lambda x: bool((x.diff() >= 0).all() and x[0] == 0 and x[-1] == 100)),
    (lambda: torch.randint(64, (448,)).bincount(minlength=64), lambda x: int(x.sum()) == 448),
    (lambda: torch.stack([torch.randint(1000, (512,)), torch.randint(10, (512,))]), lambda x: bool(x[1].amax() < 10)),
    (lambda: torch.stack([torch.randint(1000, (512,)), torch.randint(10, (512,))], 1),
     lambda x: bool(x[:, 1].amax() < 10)),
    (lambda: torch.stack([torch.arange(512), torch.arange(512) + 1])[:, torch.randperm(512)],
     lambda x: torch.equal(x[0] + 1, x[1])),
    (lambda: torch.randint(50, (512,)).where(torch.rand(512) > 0.2, -100),
     lambda x: bool(((x >= 0) | (x == -100)).all())),
    (lambda: torch.randint(-9, 9, (64, 64), dtype=torch.int8).tril(), lambda x: torch.equal(x, x.tril())),
    (lambda: torch.randint(1000, (24,)).sort().values.repeat_interleave(32),
     lambda x: bool((x.reshape(24, 32) == x[::32, None]).all() and (x.diff() >= 0).all())),
    (lambda: torch.randint(9, (8, 12)).repeat_interleave(6, 1),
     lambda x: bool((x.reshape(8, 12, 6) == x[:, ::6, None]).all())),
    (lambda: torch.arange(8).repeat(32)[torch.randperm(256)].reshape(128, 2),
     lambda x: torch.equal(x.flatten().bincount(), torch.full((8,), 32))),
    (lambda: torch.cat([torch.arange(64), torch.randint(64, (86,))])[torch.randperm(150)],
     lambda x: bool((x.bincount(minlength=64) > 0).all()) and int(x.bincount().amax()) > 10),
]  # fmt: skip


@pytest.mark.parametrize("shape", [(64, 1), (1, 64), (64, 1, 1), (1, 1, 64)])
def test_whole_numbers_in_a_dimension_of_one(shape: tuple[int, ...]) -> None:
    sets = drawn(lambda: [torch.randint(9, shape)])
    structure = find_structure(sets)
    assert describe(structure.tensors[0], sets[0][0]) == "whole numbers"
    (made,) = varied(structure, sets[0], Variation.SKEWED)
    assert made.shape == shape and not torch.equal(made, sets[0][0])


def test_blocks_of_equal_numbers_are_named_by_the_length_that_all_sets_have() -> None:
    """Neighbouring blocks of the first set are equal, so that its own are twice as long."""
    sets = [[torch.tensor(numbers).repeat_interleave(12)] for numbers in ([3, 3, 5, 5], [1, 4, 4, 4], [0, 0, 2, 9])]
    (structure,) = find_structure(sets).tensors
    assert "equal in aligned blocks of 12" in describe(structure, sets[0][0])
    assert describe(structure, sets[0][0]).count("blocks") == 1


@pytest.mark.parametrize("variation", [Variation.SKEWED, Variation.EQUAL])
@pytest.mark.parametrize("number", range(len(WHOLE)))
def test_other_whole_numbers_are_of_those_drawn(number: int, variation: Variation) -> None:
    draw, kept = WHOLE[number]
    sets = drawn(lambda: [draw()])
    structure = find_structure(sets)
    (made,), (first,) = varied(structure, sets[0], variation), sets[0]
    assert not torch.equal(made, first) and fits(structure.tensors[0], first, made) and kept(made)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.arange(64),
        lambda: torch.full((64, 64), 0.5),
        lambda: torch.where(torch.ones(64, 64).triu(1) > 0, -torch.inf, 0.0),
        lambda: torch.rand(64, 64) > 0.5,
        lambda: normal(64, 64).to(torch.float8_e4m3fn),
        lambda: torch.complex(normal(64), normal(64)),
        lambda: normal(4),
        lambda: torch.empty(0, 8),
        lambda: torch.tensor(3),
    ],
)
@pytest.mark.parametrize("variation", Variation)
def test_what_may_not_vary_stays_the_same_tensor(draw: Draw, variation: Variation) -> None:
    sets = drawn(lambda: [draw()])
    (made,) = varied(find_structure(sets), sets[0], variation)
    assert made is sets[0][0]


RELATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "equal to": lambda x: x.half(),
    "negated": lambda x: -x,
    "transposed": lambda x: x.mT.contiguous(),
    "positive part of": lambda x: x.relu(),
    "sign mask of": lambda x: x > 0,
    "cumulative sum of": lambda x: x.cumsum(-1),
    "offsets from": lambda x: F.pad(x.cumsum(-1), (1, 0)),
    "softmax of": lambda x: x.softmax(-1),
    "normalised": lambda x: F.normalize(x, dim=-1),
}


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("first", [0, 1])
def test_an_input_of_another_follows_it(name: str, first: int) -> None:
    function = RELATIONS[name]

    def draw() -> list[torch.Tensor]:
        source = normal(N, N)
        return [source, function(source)] if first == 0 else [function(source), source]

    sets = drawn(draw)
    structure = find_structure(sets)
    (relation,) = structure.relations
    assert relation.function == name
    made = varied(structure, sets[0], Variation.VALUES)
    assert relation.holds(made) and all(one is not other for one, other in zip(made, sets[0], strict=True))
    assert [(one.dtype, one.stride()) for one in made] == [(one.dtype, one.stride()) for one in sets[0]]


def test_one_set_in_which_it_does_not_hold_refutes_it() -> None:
    sets = drawn(lambda: [normal(N, N).tril(), torch.randperm(64)])
    source = normal(N, N)
    sets.append([source, torch.randint(64, (64,))])
    structure = find_structure(sets)
    assert structure.tensors[0].fixed is None and not structure.tensors[0].properties
    assert [str(one) for one in structure.tensors[1].properties] == ["whole numbers"]
    assert find_structure([[normal(N, N), normal(N, N)] for _ in range(2)]).relations == ()


def test_an_input_that_cannot_fit_stays_as_drawn() -> None:
    """Rows of mean zero and one norm: neither scaling nor norming keeps both."""
    sets = drawn(lambda: [F.layer_norm(normal(N, N), (N,))])
    (made,) = varied(find_structure(sets), sets[0], Variation.VALUES)
    assert made is sets[0][0]


def test_inputs_of_more_elements_than_are_sorted_vary_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variations, "MOST_SORTED", 1024)
    monkeypatch.setattr(properties, "MOST_SORTED", 1024)
    monkeypatch.setattr(variations, "PIECE", 100)

    def draw() -> list[torch.Tensor]:
        return [
            torch.randint(-100, 100, (N, N), dtype=torch.int8),
            torch.randint(1_000_000, (N * N,)).sort().values,
            torch.randint(1_000_000, (N, N)),
            F.one_hot(torch.randint(8, (N * 2,)), 8),
        ]

    structure = find_structure(drawn(draw))
    first = draw()
    skewed, equal = (varied(structure, first, one) for one in (Variation.SKEWED, Variation.EQUAL))
    counts = skewed[0].view(-1).unique(return_counts=True)[1]
    assert counts.max() > 8 * counts.median()
    assert set(skewed[0].view(-1).tolist()) <= set(first[0].view(-1).tolist())
    assert len(equal[0].unique()) == 1
    assert skewed[1] is first[1]  # Its order would need a permutation.
    assert not torch.equal(skewed[2], first[2])  # As its values may all differ, only whole rows moved.
    assert torch.equal(skewed[2].view(-1).sort().values, first[2].view(-1).sort().values)
    assert len(equal[3].unique(dim=0)) == 1


@pytest.mark.gpu
def test_more_elements_than_torch_sorts_vary_on_a_gpu() -> None:
    structure = find_structure(
        [torch.randint(-128, 128, (2**31 + 8,), dtype=torch.int8, device="cuda")] for _ in range(2)
    )
    first = [torch.randint(-128, 128, (2**31 + 8,), dtype=torch.int8, device="cuda")]
    for variation in (Variation.SKEWED, Variation.EQUAL):
        (changed,) = varied(structure, first, variation)
        most = (changed[-1024:] == changed[-1024:].mode().values).sum()
        assert most > 100


@pytest.mark.gpu
def test_large_inputs_on_a_gpu_take_few_copies() -> None:
    def draw() -> list[torch.Tensor]:
        return [
            torch.randn(8192, 8192, device="cuda").tril(),
            torch.randn(8192, 8192, device="cuda").softmax(-1),
            torch.randint(50_000, (8192, 1024), device="cuda"),
        ]

    torch.cuda.reset_peak_memory_stats()
    structure = find_structure(draw() for _ in range(3))
    first = draw()
    size = sum(tensor.nbytes for tensor in first)
    for variation in Variation:
        assert any(one is not other for one, other in zip(varied(structure, first, variation), first, strict=True))
    assert torch.cuda.max_memory_allocated() < 6 * size
