"""`mcp`: the tools for agents, over standard input and output or over HTTP."""

from __future__ import annotations

import argparse

from kernel_eval_client.cli.exits import Exit
from kernel_eval_client.cli.session import Session
from kernel_eval_client.errors import CallerError


def mcp(session: Session, given: argparse.Namespace) -> Exit:
    """Serves until it is stopped. Standard output belongs to the protocol; anything else goes to standard error."""
    try:
        from kernel_eval_client.agents import mcp_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "pydantic"):
            raise
        raise CallerError("kernel-eval mcp needs mcp: pip install 'kernel-eval-client[cli,mcp]'") from error
    if given.http:
        session.progress.say(f"MCP for {session.client.address.url} at http://{given.host}:{given.port}/mcp")
        if given.host not in mcp_server.LOOPBACK:
            session.progress.say("Callers need an API key of their own: the one in the environment is not lent.")
    mcp_server.run(given.url, http=given.http, host=given.host, port=given.port)
    return Exit.PASSED
