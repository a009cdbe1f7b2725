"""Pages for people: signing in, and approving the sign-in of a device. Server-rendered, without scripts.

They use the same sessions and checks as the management API and may not know providers or tables. Decided against:
scripts and outside assets (a page that grants access runs nothing), and tokens in any address.
"""
