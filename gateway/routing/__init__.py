"""Routing: which providers can serve a request, how well they perform, and in which order to try them.

The package may know the catalogue, the neutral types and the clock; never a wire format, a caller's identity, billing
or upstream calls. The caller's policy and credentials are passed in as two functions, so the package holds no account.

Rejected alternatives: a random draw weighted by score (the same request would be routed differently without a reason
to show); a round trip to a shared store while planning (health is exchanged in the background by `health.export` and
`merge`); writing anything while planning (explaining a plan must leave no trace; `Router.served` does the writing).
"""
