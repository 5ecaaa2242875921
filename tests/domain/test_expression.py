"""Launch dimensions as expressions."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.expression import ExpressionError, dimension, names, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cdiv(n, BLOCK)", 4),
        ("n // BLOCK + 1", 4),
        ("max(1, min(n, 7))", 7),
        ("next_power_of_2(n)", 1024),
        ("(n - BLOCK) % 5 * 2", 8),
        ("-1 + 3", 2),
    ],
)
def test_value(text, value):
    assert dimension(text, {"n": 1000, "BLOCK": 256}) == value


def test_numbers_stand_for_themselves():
    assert dimension(12, {}) == 12


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "n.real",
        "n[0]",
        "lambda: 1",
        "n if n else 1",
        "n ** 9",
        "'a'",
        "open(n)",
        "",
        "a b",
        "n / 2",
        "True",
        "(" * 100 + ")" * 100,
        "cdiv(n, b=2)",
        "cdiv(n)",
        "cdiv(n, 2, 3)",
        "max(n)",
        "min()",
        "next_power_of_2()",
    ],
)
def test_other_forms_are_refused(text):
    with pytest.raises(ExpressionError):
        parse(text)


def test_a_function_with_other_arguments_is_told_its_form():
    with pytest.raises(ExpressionError, match=r"^cdiv is written cdiv\(a, b\)$"):
        parse("1 + cdiv(n)")


@pytest.mark.parametrize("text", ["n // 0", "m", "n - 2000", "n * 99999999 * 99999999999", "n * 0.3001"])
def test_values_that_are_no_dimension(text):
    with pytest.raises(ExpressionError):
        dimension(text, {"n": 1000})


def test_names_are_the_arguments_read():
    assert names("cdiv(n, B) * min(k, 2)") == {"n", "B", "k"}


@given(st.text(max_size=60))
def test_no_text_gets_through_by_another_exception(text):
    with contextlib.suppress(ExpressionError):
        assert dimension(text, {"n": 3}) >= 0
