"""The page with settings of agents, editors and MCP clients, each with a test."""
