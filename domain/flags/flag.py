"""One flag of a result; it never changes a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from domain.flags.codes import FlagCode

Figures = Mapping[str, str | float | None]


@dataclass(frozen=True)
class Flag:
    """One warning. `data` holds the figures, JSON-ready and flat, with units in the names."""

    code: FlagCode
    message: str
    data: Figures = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, code: FlagCode, **data: Any) -> Flag:
        """A flag whose message is the meaning of its code."""
        return cls(code, code.meaning.removesuffix("."), data)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Flag:
        """Reads the form of `dataclasses.asdict`; raises KeyError or ValueError for any other."""
        return cls(FlagCode(stored["code"]), stored["message"], stored["data"])
