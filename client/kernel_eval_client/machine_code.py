"""What a kernel's machine code needs, out of a result's `build`; docs/DEVICE_METRICS_GUIDE.md explains each figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_eval_client.untyped import number, objects, whole


@dataclass(frozen=True)
class MachineCode:
    """One kernel's, or one configuration's of a kernel; None is what is not known.

    `registers` and the bytes of `local` memory and spills are of a thread, `shared_bytes` of a block (static, and
    dynamic where the launch is known). `occupancy` is theoretical, 0 to 1; `limited_by` is what keeps out more blocks:
    registers, shared_memory, warps or blocks.
    """

    name: str
    registers: int | None = None
    local_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    limited_by: str | None = None

    @classmethod
    def all_of(cls, build: Mapping[str, Any], name: str) -> list[MachineCode]:
        """Of every kernel that the build tells of; `name` is for one that was built alone."""
        several = [one for key in ("variants", "kernels") for one in objects(build.get(key))]
        if several:
            return [cls._of(one, _name(one, number)) for number, one in enumerate(several, 1)]
        return [cls._of(build, str(build.get("kernel") or name))] if build.get("registers") is not None else []

    @classmethod
    def _of(cls, told: Mapping[str, Any], name: str) -> MachineCode:
        held = told.get("occupancy")
        if not isinstance(held, Mapping):
            held = {"theoretical": held, "limited_by": told.get("limited_by")}
        shared = (held.get("shared_bytes"), told.get("shared_bytes"), told.get("static_shared_bytes"))
        theoretical, limit = held.get("theoretical"), held.get("limited_by")
        return cls(
            name,
            whole(told.get("registers")),
            whole(told.get("local_bytes")),
            whole(told.get("spill_store_bytes")),
            whole(told.get("spill_load_bytes")),
            next((size for each in shared if (size := whole(each)) is not None), None),
            number(theoretical),
            str(limit) if limit is not None else None,
        )


def _name(told: Mapping[str, Any], number: int) -> str:
    chosen = ", ".join(f"{key}={told[key]}" for key in ("num_warps", "num_stages") if told.get(key) is not None)
    return str(told.get("name") or f"variant {number}") + (f": {chosen}" if chosen else "")
