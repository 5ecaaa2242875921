"""`mcp`: the tools for agents, over standard input and output or over HTTP."""

from __future__ import annotations

import argparse

from kernel_eval_client.cli.exits import Exit
from kernel_eval_client.cli.session import Session
from kernel_eval_client.errors import CallerError


def mcp(session: Session, arguments: argparse.Namespace) -> Exit:
    """Serves until it is stopped. Standard output carries only the protocol; other text goes to standard error."""
    try:
        from kernel_eval_client.agents import mcp_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "pydantic"):
            raise
        raise CallerError("kernel-eval mcp needs mcp: pip install 'kernel-eval-client[cli,mcp]'") from error
    if arguments.http:
        session.progress.say(f"MCP for {session.client.address.url} at http://{arguments.host}:{arguments.port}/mcp")
        if arguments.host not in mcp_server.LOOPBACK:
            session.progress.say(
                "Callers need an API key of their own: this server does not use the one in its environment for them."
            )
    mcp_server.run(arguments.url, http=arguments.http, host=arguments.host, port=arguments.port)
    return Exit.PASSED
