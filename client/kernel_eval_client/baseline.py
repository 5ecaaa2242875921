"""A form of the reference that was timed, and the kernel's speed-up over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_eval_client.timing import Speedup, known_fields
from kernel_eval_client.typed_members import member, number, objects_in_list, text, whole


@dataclass(frozen=True)
class BaselineResult:
    """`name` is "eager" or "compile". Without a `speedup`, `code` and `message` say why (docs/api.md, "Baselines")."""

    name: str
    latency_ms: float | None = None
    speedup: Speedup | None = None
    graph_breaks: int | None = None
    code: str | None = None
    message: str | None = None

    @classmethod
    def all_of(cls, wire: Mapping[str, Any]) -> Sequence[BaselineResult]:
        """The baselines of a result; empty where the request named none."""
        return tuple(cls._of(each) for each in objects_in_list(wire.get("baselines")))

    @classmethod
    def _of(cls, wire: Mapping[str, Any]) -> BaselineResult:
        speedup = wire.get("speedup")
        return cls(
            text(wire.get("name")) or "?",
            number(wire.get("latency_ms")),
            Speedup(**known_fields(Speedup, speedup)) if isinstance(speedup, Mapping) else None,
            whole(wire.get("graph_breaks")),
            text(member(wire, "unavailable", "code")),
            text(member(wire, "unavailable", "message")),
        )
