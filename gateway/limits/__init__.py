"""What a caller may still spend or send: budgets, their leases to workers, the ledger of credits, rate limits.

It knows ids of organizations, keys, members, teams and provider keys, and integer nano-dollars; it may not know prices,
providers, surfaces or what a request asks for. Admission happens in memory: a worker holds a slice of each budget under
a lease and only takes another one from the store when that runs out.
Decided against: check-then-increment (it overshoots by whatever runs at once); counters in redis (money must not
depend on it); one row lock a request on the shared budget (it would queue every worker's commit).
"""
