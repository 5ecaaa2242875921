"""For agents: an MCP server over the client, and what a result is in a few lines."""
