"""The Model Context Protocol at `/mcp` (streamable HTTP, stateless): the gateway's tools for agents, by API key.

`routes` answers HTTP in the order of the reference (`access`: who is let in), `messages` reads and writes JSON-RPC,
`revisions` knows what the versions of the protocol differ in, `methods` is what can be asked for, `bridge` the older
transport with a stream. `tools` is the table of tools: reports (`analytics`), lists of models (`models`) and generation
(`generation`), which takes the engine's own way with all of its rules, limits and money, or asks another gateway
(`elsewhere`). `saving` writes images into the operator's folder.

Decided against: the official Python SDK as the server. It is asynchronous and brings a web framework; what a stateless
server without streams needs is a page of code.
"""
