"""The HTTP server: gunicorn's arbiter and worker, HTTP/1.1 for callers, and the express lane before Flask.

Starting: `launch` is the entry point, `master` the arbiter, `ports` checks that an address can be listened on, `boot`
starts a worker, `ready_workers` counts the workers that are ready. `huge_pages` asks for large memory pages once a
worker is in use.
Serving: `worker` is the gunicorn worker, `worker_state` what its connections share, `connection` one connection;
`http1` parses requests, `request_heads` caches parsed heads, `request_bodies` reads bodies within the limits of
`resource_limits`, `response_writer` writes responses. `express` answers the hot operations without Flask; every other
request passes `middleware` first.
Protecting: `connection_timeouts` ends idle, slow and abandoned connections, `send_progress` measures how fast a
response is read, `watchdog` reports what blocks the event loop, `drain` is the graceful shutdown, `metrics_port` a
separate port for metrics.

May not know: dialects, providers, the engine, Flask. It sees a WSGI callable, which may carry attributes, all optional:
`max_body` and `max_form` (bytes), `spool_dir` (where large forms are stored), `bodies` (the budget of large bodies),
`express` (the lane before it), `limits` (the server's settings), `owner_of` (returns whose request it is, from its
headers; raises), `refused` (called for input that was no valid request, with the error, an id and the connection's
environ), `follow` (called with a callback that
replaces this application by another), `watch` (called with a function that returns the worker's gauges), `draining`
(called with True when the worker begins to shut down), `busy` (returns whether it works on without a connection) and
`close` (called last).

Decided against: a timer or watcher per request (one sweep four times a second serves all), HTTP/2 (left to a proxy),
and letting the C parser read bodies (it cannot stop between pipelined requests).
"""
