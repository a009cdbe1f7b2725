"""Upstream wire formats: each folder writes neutral requests and reads neutral answers for one of them.

A protocol imports neither accounts nor routing and opens no connection itself: `Call` out, `UpstreamReply` in. Decided
against: vendors' SDKs (a connection pool and a retry policy each) and one class for every provider (differences are
data: catalogue entries and small named quirks).
"""
