"""Limits on what a caller may spend or send: budgets, their leases to workers, the ledger of credits, rate limits.

This package knows ids of organizations, keys, members, teams and provider keys, and integer nano-dollars; it must not
know prices, providers, surfaces or the content of a request. Admission happens in memory: a worker holds a slice of
each budget under a lease and reads the store only when that slice is used up.
Rejected alternatives: check-then-increment (concurrent requests overshoot the limit); counters in redis (money must not
depend on it); one row lock per request on the shared budget (it would serialize every worker's commits).
"""
