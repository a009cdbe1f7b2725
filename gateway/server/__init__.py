"""The HTTP server: gunicorn's arbiter and worker, HTTP/1.1 for callers, and the express lane before Flask.

Starting: `launch` is the entry point, `master` the arbiter, `ports` checks that an address can be bound, `boot` starts
a worker and counts the workers that are ready.
Serving: `worker` is the gunicorn worker, `worker_state` what its connections share, `connection` one connection;
`http1` parses requests, `request_heads` caches parsed heads, `request_bodies` reads bodies within limits,
`response_writer` writes responses. `express` answers the hot operations without Flask; every other
request passes `middleware` first.
Protecting: `connection_timeouts` ends idle, slow and abandoned connections, `watchdog` reports what blocks the event
loop, `drain` is the graceful shutdown, `metrics_port` a separate port for metrics.

It does not know dialects, providers, the engine or Flask. It calls a WSGI callable with optional attributes: `max_body`
and `max_form` (bytes), `spool_dir` (folder for large forms), `bodies` (the budget of large bodies), `express` (the
express lane), `limits` (the server's settings), `owner_of` (returns the owner of a request from its headers; raises),
`refused` (called for input that was not a valid request, with the error, an id and the connection's environ), `follow`
(called with a callback that replaces this application by another), `watch` (called with a function that returns the
worker's gauges), `draining` (called with True when the worker begins to shut down), `busy` (returns whether it works
without a connection) and `close` (called last).

Decided against: a timer or watcher per request (one sweep four times a second serves all), HTTP/2 (left to a proxy),
and letting the C parser read bodies (it cannot stop between pipelined requests).
"""
