"""The Model Context Protocol at `/mcp` (streamable HTTP, stateless): the gateway's tools for agents, by API key.

Requests: `routes` handles HTTP and the order of checks, has the methods, and the older HTTP+SSE transport. `json_rpc`
checks connections (origins, versions, keys), reads and writes messages, and knows the differences between versions of
the protocol.

Tools: `tool_table` lists them, and has the reports and the model lists. `generation` has the tools that spend money; it
uses the engine with all of its rules, limits and billing, or calls another gateway, and writes images into the
operator's folder. `tool_schemas` describes the arguments.

Decided against: the official Python SDK as the server. It is asynchronous and brings a web framework; a stateless
server without streams needs only a page of code.
"""
