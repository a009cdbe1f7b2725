"""The HTTP server under the application: gunicorn's arbiter and worker, and the express lane before Flask.

`launch` starts it, under the arbiter in `master`; `ports` says why nothing can listen; `boot` is the start of a worker,
`siblings` how many others are ready;
`worker` is what gunicorn runs; `connection`, `http1` and `reply` are one connection, the reading of requests and the
writing of answers; `pulse` is the beat of a worker, `sweeper` notices callers that hung up; `drain` is the end of a
worker; `heads` are request heads that came before; `express` answers the hot operations without Flask dispatch; `front`
is what all others pass before it; `intake` bounds what callers take up, `bodies` takes it in; `watchdog` names who
holds the event loop; `pages` are of memory.

May not know: dialects, providers, the engine, Flask. It sees a WSGI callable, which may carry attributes, all
optional: `max_body` and `max_form` (bytes), `spool_dir` (where large forms lie), `express` (the lane before it),
`limits` (the settings of the server), `owner_of` (whose a request is, by its headers; raises), `refused` (told
of what was no request: the error, an id, the environ of the connection), `follow` (called with
what takes the application that this one stands in for), `watch` (called with what gives the figures of the worker),
`draining` (called with True when a worker begins to leave) and `close` (called last).

Decided against: a timer or watcher a request (one sweep four times a second serves all), HTTP/2 (a proxy's task), and
letting the C parser read bodies (it cannot stop between pipelined requests).
"""
