"""Upstream wire formats: each folder writes neutral requests and reads neutral answers in one of them.

A protocol imports neither accounts nor routing and opens no connection itself: it returns a `Call` and reads an
`UpstreamReply`. Decided against: vendors' SDKs (each has its own connection pool and retry policy) and one class for
every provider (differences are data: catalogue entries and small named quirks).
"""
