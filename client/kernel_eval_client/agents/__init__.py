"""For agents: an MCP server over the client, and results in a few lines."""
