"""The codec that values cross between processes in."""

import contextlib
import json
import math
from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.value import CodecError, DtypeName, TensorRef, Unserializable, decode, encode, leaves, replace

Batch = namedtuple("Batch", ["q", "k"])
REF = TensorRef("float32", (2, 3), (3, 1), 512)

plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20)
trees = st.recursive(
    plain | st.just(REF) | st.just(DtypeName("bfloat16")) | st.just(Unserializable("function gelu")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_a_named_tuple_stays_one_and_does_not_cross():
    changed = replace([Batch(1, "a")], str, str.upper)
    assert changed[0].k == "A" and type(changed[0]) is Batch
    with pytest.raises(CodecError, match=r"named tuple \(Batch\) would arrive as a plain one"):
        encode(changed)


@given(trees)
def test_what_is_encoded_comes_back(value):
    try:
        wire = encode(value)
    except CodecError:
        pytest.fail("every such tree crosses")
    assert same(decode(json.loads(json.dumps(wire))), value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["$", "items", "text", "dtype", "shape", "strides", "offset"]),
                inner | st.sampled_from(["tensor", "tuple", "dict", "int", "float", "float32"]),
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_untrusted_bytes_decode_or_are_refused(wire):
    with contextlib.suppress(CodecError):
        decode(wire)


@pytest.mark.parametrize(
    "wire",
    [
        {"$": "tensor", "dtype": "float32", "shape": [2], "strides": [1, 1], "offset": 0},
        {"$": "tensor", "dtype": "object", "shape": [2], "strides": [1], "offset": 0},
        {"$": "tensor", "dtype": "float32", "shape": [-1], "strides": [1], "offset": 0},
        {"$": "tensor", "dtype": "float32", "shape": [2], "strides": [1], "offset": -4},
        {"$": "tensor", "dtype": "float32", "shape": [1 << 40, 1 << 40], "strides": [1 << 40, 1], "offset": 0},
        {"$": "tensor", "dtype": "float32", "shape": [1 << 40, 1 << 40, 0], "strides": [0, 0, 0], "offset": 0},
        {"$": "tensor", "dtype": ["float32"], "shape": [2], "strides": [1], "offset": 0},
        {"$": "tensor", "dtype": "float32", "shape": [True], "strides": [1], "offset": 0},
        {"$": "pickle", "items": []},
        {"no": "tag"},
        [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]],
        [0] * 70_000,
        "x" * 70_000,
        {"$": "float", "text": "1e400"},
        {"$": "int", "text": "zz"},
    ],
)
def test_refused(wire):
    with pytest.raises(CodecError):
        decode(wire)


def test_copies_have_no_more_nodes_than_a_value():
    assert decode([0] * 999, copies=65) == [0] * 999
    with pytest.raises(CodecError, match="in all its copies"):
        decode([0] * 999, copies=66)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_integers_over_64_bits_do_not_cross(value):
    with pytest.raises(CodecError, match="64 bits"):
        encode(value)


def test_objects_do_not_cross():
    with pytest.raises(CodecError, match="set does not cross"):
        encode({1, 2})


def test_span_counts_gaps_and_nothing_for_empty_tensors():
    assert TensorRef("float32", (2, 3), (4, 1)).span == (4 + 2 + 1) * 4
    assert TensorRef("float16", (0, 3), (3, 1)).span == 0
    assert TensorRef("int64", (), ()).span == 8


def test_leaves_and_replace_walk_depth_first():
    value = {"a": (1, [REF, 2]), "b": REF.at(0)}
    assert leaves(value, TensorRef) == [REF, REF.at(0)]
    assert replace(value, TensorRef, lambda ref: ref.offset) == {"a": (1, [512, 2]), "b": 0}
