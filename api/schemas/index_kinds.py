"""Checks the index sets of a contract that belong together: `init.kind`s that follow rules (docs/api.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from marshmallow import ValidationError

from domain.contract import INDEX_KINDS
from domain.dtype import INTEGERS, ITEM_BYTES

PARTS = ("lengths", "offsets")
"""The kinds that others may follow."""
MAX_SPREAD = 1 << 62
"""Maximum product of a bound, a count and a sum: what drawing multiplies."""
MAX_NUMBERS = 1 << 27
"""Maximum index numbers of one tensor: drawing takes up to 90 bytes for each, whatever their dtype (12 GB)."""


def check_index_kinds(arguments: list[dict[str, Any]]) -> None:
    """Raises ValidationError, with the path of the member at fault, for index numbers that cannot be drawn."""
    by_name: dict[str, _Rule | None] = {}
    rules = []
    for place, argument in enumerate(arguments):
        spec, rule = argument.get("tensor_spec") or {}, None
        if (spec.get("init") or {}).get("kind") in INDEX_KINDS and not spec.get("data"):
            rules.append(rule := _Rule(place, spec))
        by_name.setdefault(argument["name"], rule)  # The first of several is the one that is drawn.
    for rule in rules:
        rule.check(by_name)


class _Rule:
    """One index argument: its shape and the members of its `init`."""

    def __init__(self, place: int, spec: dict[str, Any]) -> None:
        self._place = place
        self._spec = spec
        self._init: dict[str, Any] = spec["init"]
        self.kind: str = self._init["kind"]
        self.shape: list[int] = spec["shape"] or []
        self.total: int | None = self._init.get("total")
        self.of: str | None = self._init.get("of")

    @property
    def count(self) -> int:
        """The number of parts, for lengths and offsets that follow no other argument."""
        return self.shape[0] - (self.kind == "offsets")

    @property
    def high(self) -> int:
        high = self._init.get("high")
        return int(high) if high is not None else 100 if self.total is None else self.total

    def check(self, rules: Mapping[str, _Rule | None]) -> None:
        """Raises ValidationError for numbers that cannot be drawn."""
        dtype = self._spec.get("dtype") or "float32"
        if dtype not in INTEGERS:
            self._refuse(f"{self.kind} are whole numbers: give an integer dtype, not {dtype}", "dtype")
        if self._spec.get("strides") is not None:
            self._refuse(f"{self.kind} are contiguous", "strides")
        if (self.kind != "distinct" and len(self.shape) != 1) or not self.shape:
            self._refuse(f"{self.kind} have {'dimensions' if self.kind == 'distinct' else 'one dimension'}", "shape")
        if math.prod(self.shape) > MAX_NUMBERS:
            self._refuse(f"is too large: {self.kind} are {MAX_NUMBERS} at most", "shape")
        for name in ("low", "high"):
            bound = self._init.get(name)
            if bound is not None and (bound < 0 or bound != int(bound)):
                self._refuse(f"must be a whole number that is not negative, not {bound:g}", "init", name)
        if self.kind == "distinct":
            highest = self._check_distinct()
        elif self.kind in PARTS and self.of is None:
            highest = self._check_drawn()
        else:
            highest = self._check_following(rules)
        bits = 8 * ITEM_BYTES[dtype] - (not dtype.startswith("u"))
        if highest >= 1 << bits:
            self._refuse(f"holds up to {highest}, and {dtype} does not", "dtype")

    def _check_distinct(self) -> int:
        high = int(self._init["high"]) if self._init.get("high") is not None else self.shape[-1]
        if high < self.shape[-1]:
            self._refuse(f"has {high} numbers below it; a row takes {self.shape[-1]} different ones", "init", "high")
        if high >= MAX_SPREAD:
            self._refuse(f"must be below {MAX_SPREAD}", "init", "high")
        return high - 1

    def _check_drawn(self) -> int:
        """Checks bounds and sum; returns the greatest number."""
        low, high, count, total = int(self._init.get("low") or 0), self.high, self.count, self.total
        if count < 0:
            self._refuse("offsets have one entry more than there are parts: at least 1", "shape")
        if low > high:
            self._refuse(f"must not be below low: low is {low}, high is {high}", "init", "high")
        if total is not None and not count * low <= total <= count * high:
            sums = f"{count} lengths from {low} to {high} have sums from {count * low} to {count * high}"
            self._refuse(f"cannot be {total}: {sums}", "init", "total")
        most = count * high if total is None else total
        if max(most, 1) * max(count, 1) * high >= MAX_SPREAD:
            self._refuse("is too large for so many parts: give fewer, or a lower `high`", "shape")
        return high if self.kind == "lengths" else most

    def _check_following(self, rules: Mapping[str, _Rule | None]) -> int:
        """Checks that the numbers fit the argument that they follow; returns the greatest one."""
        source = rules.get(self.of or "")
        other_parts = tuple(kind for kind in PARTS if kind != self.kind)
        if source is None or source.kind not in other_parts:
            named = "is missing; it names" if self.of is None else f"must name, other than {self.of!r},"
            self._refuse(f"{named} an argument whose init.kind is {' or '.join(other_parts)}", "init", "of")
        root = source if source.of is None else rules.get(source.of)
        if root is None or root.of is not None or len(root.shape) != 1 or len(source.shape) != 1:
            self._refuse(f"names {self.of!r}, which is not drawn", "init", "of")
        parts = root.count
        if source.kind == "offsets" and source.shape[0] != parts + 1:
            self._refuse(f"names offsets without their end; name {source.of!r}", "init", "of")
        if self.kind in PARTS:
            sizes = (parts,) if self.kind == "lengths" else (parts + 1, parts)
            most = root.high if self.kind == "lengths" else root.high * parts if root.total is None else root.total
        else:
            if root.total is None:
                self._refuse(f"names {self.of!r}, whose lengths have no `total`: the size would vary", "init", "of")
            sizes, most = (root.total,), parts - 1
        if self.shape[0] not in sizes:
            self._refuse(f"must be [{sizes[0]}] after {self.of!r}, not {self.shape}", "shape")
        return self._check_columns(root, parts) if self.kind == "columns" else most

    def _check_columns(self, root: _Rule, parts: int) -> int:
        high = self._init.get("high")
        if high is None:
            self._refuse("is missing: the number of columns", "init", "high")
        if int(high) < root.high:
            message = f"is {int(high)}, and a part takes up to {root.high} different numbers below it"
            self._refuse(f"{message}: raise it, or lower the `high` of the parts' lengths", "init", "high")
        if parts * (int(high) + 1) >= MAX_SPREAD:
            self._refuse("is too large for so many parts", "init", "high")
        return int(high) - 1

    def _refuse(self, message: str, *path: str) -> NoReturn:
        errors: Any = [message]
        for step in reversed(("args", self._place, "tensor_spec", *path)):
            errors = {step: errors}
        raise ValidationError(errors)
