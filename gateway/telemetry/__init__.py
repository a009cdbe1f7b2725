"""What operators are told while the gateway runs: each request at its end, changes of state, figures, traces, alerts.

`ends` is the one hook: every request of every surface passes it once, whatever became of it. Whoever wants to know
registers there and is given a `FinishedRequest`; nobody else looks into surfaces or engine for it. Decided against: a
log call for each step (a request's story would have to be put together from lines), and logging's own machinery for
the request line (it costs more than the line).
"""
