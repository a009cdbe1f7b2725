"""The management API: sign-in, organizations, members, projects, keys, limits, provider keys, credits, activity.

The requests of its public command-line client, and the answers that it expects, are binding. A view gets the signed-in
visitor, checks the role, calls accounts, limits or the engine, and presents the result; access rules are in
`visitor.py` alone. It may not know providers or tables. Decided against: API keys as credentials here (a leaked key
must not create another one), hiding forbidden resources behind 404 (the client's users need to learn that they lack a
permission), and session tokens in URLs.
"""
