"""The daemon's operations over HTTP, for agents by MCP, and on pages for people."""
