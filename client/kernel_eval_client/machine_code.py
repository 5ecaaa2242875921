"""Registers, memory and occupancy of compiled kernels, from a result's `build` (docs/DEVICE_METRICS_GUIDE.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_eval_client.typed_members import number, objects_in_list, whole


@dataclass(frozen=True)
class MachineCode:
    """One kernel, or one configuration of a kernel; None is unknown.

    `registers`, local memory and spills (in bytes) are per thread. `shared_bytes` is per block: static, and dynamic if
    the launch is known. `occupancy` is theoretical, 0 to 1; `limited_by` is registers, shared_memory, warps or blocks.
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
        """Reads every kernel in `build`; `name` is the name of a single kernel without one."""
        entries = [entry for key in ("variants", "kernels") for entry in objects_in_list(build.get(key))]
        if entries:
            return [cls._of(entry, _variant_label(entry, number)) for number, entry in enumerate(entries, 1)]
        return [cls._of(build, str(build.get("kernel") or name))] if build.get("registers") is not None else []

    @classmethod
    def _of(cls, entry: Mapping[str, Any], name: str) -> MachineCode:
        occupancy = entry.get("occupancy")
        if not isinstance(occupancy, Mapping):
            occupancy = {"theoretical": occupancy, "limited_by": entry.get("limited_by")}
        shared = (occupancy.get("shared_bytes"), entry.get("shared_bytes"), entry.get("static_shared_bytes"))
        theoretical, limit = occupancy.get("theoretical"), occupancy.get("limited_by")
        return cls(
            name,
            whole(entry.get("registers")),
            whole(entry.get("local_bytes")),
            whole(entry.get("spill_store_bytes")),
            whole(entry.get("spill_load_bytes")),
            next((size for each in shared if (size := whole(each)) is not None), None),
            number(theoretical),
            str(limit) if limit is not None else None,
        )


def _variant_label(entry: Mapping[str, Any], number: int) -> str:
    chosen = ", ".join(f"{key}={entry[key]}" for key in ("num_warps", "num_stages") if entry.get(key) is not None)
    return str(entry.get("name") or f"variant {number}") + (f": {chosen}" if chosen else "")
