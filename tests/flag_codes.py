"""The codes of a list of flags."""

from __future__ import annotations

from collections.abc import Iterable

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag


def codes(flags: Iterable[Flag]) -> list[FlagCode]:
    return [flag.code for flag in flags]
