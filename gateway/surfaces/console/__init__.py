"""Pages for people: sign-in, approving the sign-in of a device, accepting an invitation, the request log. They contain
no scripts.

They use the same sessions and checks as the management API and may not know providers or tables. Decided against:
scripts and external assets (a page that grants access runs nothing), and tokens in a page's URL: an invitation's token
moves into a cookie before a page is shown.
"""
