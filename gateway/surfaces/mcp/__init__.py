"""The Model Context Protocol at `/mcp` (streamable HTTP, stateless): the gateway's tools for agents, by API key.

Requests: `routes` handles HTTP and the order of checks, after `connection_checks` (origins, versions, keys). `json_rpc`
reads and writes messages, `methods` has the methods, `revisions` the differences between versions of the protocol, and
`sse_transport` the older HTTP+SSE transport.

Tools: `tool_table` lists them. `analytics` has the reports, `model_tools` the model lists, and `generation` the tools
that spend money; it uses the engine with all of its rules, limits and billing, or calls another gateway
(`remote_gateway`). `saved_images` writes images into the operator's folder.

Decided against: the official Python SDK as the server. It is asynchronous and brings a web framework; a stateless
server without streams needs only a page of code.
"""
