"""The management API: sign-in, organizations, members, projects, keys, limits, provider keys, credits, activity.

What its public command-line client sends and expects is binding. A view gets the signed-in visitor, checks the role,
calls accounts, limits or the engine, and shows the result; rules of access stand in `visitor.py` alone. It may not
know providers or tables. Decided against: API keys as credentials here (a leaked key must not make another one),
hiding of what a visitor may not touch behind 404 (the client's users need to learn that they lack a right), and
session tokens in any address.
"""
