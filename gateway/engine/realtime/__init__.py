"""Realtime sessions: opened with failover, relayed both ways, and paid for response by response.

A session lives and dies with its worker, whose connection it is. So each response of it is a request of its own,
admitted and reserved before the provider may begin it and durable before its end is passed on; what a crash leaves open
becomes rows by the same recovery as of every other request. Nothing is reserved while nobody asks for anything.
"""
