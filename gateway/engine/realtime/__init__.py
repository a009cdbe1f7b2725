"""Realtime sessions: opened with failover, relayed both ways, and paid for response by response.

A session ends with its worker, which holds its connections. Each response of a session is a request that is admitted
and reserved before the provider may begin it, and durable before its end is passed on; after a crash the usual recovery
settles open responses. Nothing is reserved while no response is requested.
"""
