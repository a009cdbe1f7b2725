"""Upstream wire formats: each folder writes neutral requests and reads neutral answers for one of them.

Knows nothing of callers, accounts or routing, and opens no connection itself: `Call` out, `Reply` in. Decided
against: vendors' SDKs (a connection pool and a retry policy each) and one class for every provider (differences are
data: catalogue entries and small named quirks).
"""
