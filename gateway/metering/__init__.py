"""Usage: one narrow row for each upstream attempt, which is also its settlement, and the app that made the call.

This package knows counts, nano-dollars and ids; it must not know how a request was planned, sent or priced, nor any
surface. Retained payloads are stored separately, encrypted, with their own retention (payload_table.py).
Rejected alternatives: payloads in the usage row, which must stay narrow, and an ORM object for each request.
"""
