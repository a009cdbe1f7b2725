"""The web console: sign-in, device approval, invitations, API keys, usage, alerts and the request log.

The pages use the same sessions and checks as the management API and do not access providers or tables. They contain no
scripts and no external assets, because some of them grant access. No page has a token in its URL: the token of an
invitation moves into a cookie before the page is shown.
"""
