"""Rewrites messages of the service for the tools: their arguments replace the request's fields."""

from __future__ import annotations

import re

_ENTRY = r"(?:kernel_name|function_name|entry_point|class_name)"
_SIDES = {"custom_kernel": "candidate_", "ref_kernel": "reference_", "kernel": ""}
_FIELDS = {"source_code": "code", "kernel_type": "type", "io": "io"}


_TOOLS = {
    "/docs and /openapi.json have whole requests": "list_examples has contracts that fit",
    "`GET /health` lists": "the tool `service` lists",
    "`GET /health`": "the tool `service`",
    "`GET /jobs`": "the tool `jobs`",
    "`GET /job/<id>?wait=60`": "the tool `result`",
    "`/compare`": "the tool `compare`",
    "which `comparison` has": "which `result` has with part=comparison",
    "`sanitize`": "sanitize=true",
    "`device_metrics`": "device_metrics=basic",
}
"""By the service's name for a step, the tool or the argument that does it."""


def for_tools(text: str, *, compared: bool) -> str:
    """The message with `candidate_io` in place of `custom_kernel.io`, and so on."""
    for side, prefix in _SIDES.items():
        for field, argument in _FIELDS.items():
            text = re.sub(rf"\b{side}\.{field}\b", prefix + argument if prefix else field, text)
        text = re.sub(rf"\b{side}\.metadata(?:\.{_ENTRY})?\b", f"{prefix}entry", text)
    entry = "candidate_entry" if compared else "entry"
    text = re.sub(rf"\bmetadata\.{_ENTRY}\b|\bmetadata \({_ENTRY}(?:, {_ENTRY})*\)", entry, text)
    for service, tool in _TOOLS.items():
        text = text.replace(service, tool)
    return text
