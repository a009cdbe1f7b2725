"""The Model Context Protocol at `/mcp` (streamable HTTP, stateless): the gateway's tools for agents, by API key.

Requests: `routes` handles HTTP with its checks in the order of the reference, after `access` (who may connect).
`messages` reads and writes JSON-RPC, `methods` has the methods, `revisions` the differences between versions of the
protocol, and `sse_transport` the older HTTP+SSE transport.

Tools: `tools` is their table. `analytics` has the reports, `models` the model lists, and `generation` what spends
money; it goes through the engine with all of its rules, limits and billing, or calls another gateway
(`remote_gateway`). `saved_images` writes images into the operator's folder.

Decided against: the official Python SDK as the server. It is asynchronous and brings a web framework; what a stateless
server without streams needs is a page of code.
"""
