"""What `ENABLE_DEVICE_METRICS` is answered with as long as no hardware counters are read."""

from __future__ import annotations

NOT_COLLECTED = {
    "status": "unavailable",
    "reason": (
        "this version does not read hardware counters; unset ENABLE_DEVICE_METRICS, and profile with ncu by hand. What "
        "is known without counters is in `build` and, with `profile`, in `launches` (docs/DEVICE_METRICS_GUIDE.md)"
    ),
}
