"""The only HTTP client of the gateway: pools, deadlines, streaming and the guard of addresses.

It knows sockets and HTTP/1.1 and nothing of providers, callers or money; errors are gateway.errors'.

Decided against geventhttpclient, measured in this client's place on one core (CPU µs of the client, 16 at once,
three rounds each): 39 a call against 24 here, streams of 53 events alike (213 both). Beside that it waits without
limit at its cap of connections, gives no bytes before n have come, and connects by name, so that an address could
not be checked and pinned. Parsing stays with httptools, a C parser; what is ours is sockets and time.
Decided against receiving before waiting: an upstream needs its time, so the attempt is nearly always a system call
and an exception in vain, and the wait gives the other greenlets their turn.
Decided against gevent's own waiting: it starts and stops a watcher and a timer for each receive, and the event loop
asks the kernel anew each time. A connection's watcher stays started and stops only when nobody reads; its one alarm is
set anew only for a nearer end, or when it rings too early.
Decided against redirects, cookies, proxies and automatic repetition: a request that may have left is never sent
again by itself (GET and HEAD apart), because a provider may charge for both.
"""

from gateway.transport.client import Transport
from gateway.transport.upstream_responses import Answer, Pending, Reply

__all__ = ["Answer", "Pending", "Reply", "Transport"]
