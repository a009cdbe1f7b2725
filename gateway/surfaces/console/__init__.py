"""Pages for people: signing in, approving the sign-in of a device, accepting an invitation, the request log. Without
scripts.

They use the same sessions and checks as the management API and may not know providers or tables. Decided against:
scripts and outside assets (a page that grants access runs nothing), and tokens in the address of any page: that of an
invitation's link moves into a cookie before a page is shown.
"""
