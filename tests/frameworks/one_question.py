"""A harness for verifiers: asks the model once, in this process, through the rollout's own endpoint."""

from __future__ import annotations

from typing import Any

import httpx
from verifiers.v1 import Harness, HarnessConfig, ProgramResult

__all__ = ["OneQuestion"]


class OneQuestion(Harness[HarnessConfig]):
    """Its own harnesses are programs that uv fetches the packages of; this one needs no network."""

    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> ProgramResult:
        _, prompt = self.resolve_text_prompt(data)
        body = {"model": ctx.model, "messages": [{"role": "user", "content": prompt}]}
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=60) as client:
            (await client.post(f"{endpoint}/chat/completions", json=body)).raise_for_status()
        return ProgramResult(exit_code=0, stdout="", stderr="")
