"""The web console: sign-in, device approval, invitations, API keys, usage, alerts and the request log.

The pages use the same sessions and checks as the management API; they run its operations and do not access providers or
tables. They contain nothing from other hosts and no inline scripts. Pages that grant access (sign-in, consent) contain
no scripts at all. No page has a token in its URL: the token of an invitation moves into a cookie first.
"""
