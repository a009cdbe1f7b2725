"""Routing: the providers that can serve a request, how well each does, in which order to try them.

May know the catalogue, the neutral form and the clock; never a wire format, a caller's identity, a price's billing
or an upstream call. The caller's policy and credentials come in as two functions, so the package holds no account.

Decided against: a random draw weighted by score (the same request would go elsewhere without a reason to show); a
round trip to a shared store while planning (health is exchanged behind the scenes, `health.export` and `merge`);
writing anything while planning (a plan that is only explained must leave no trace; `Router.served` does the writing).
"""
