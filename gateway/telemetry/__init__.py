"""Observability: finished requests, state changes, metrics, traces and alerts.

`request_observers` is the one hook: every request of every surface passes it once when it finishes, whatever the
result. Observers register there and receive a `FinishedRequest`; nothing else inspects surfaces or engine for it.
Decided against: a log call for each step (a request's history would have to be assembled from lines), and the logging
module's machinery for the request line (it costs more than the line).
"""
