"""Usage: one narrow row for each upstream attempt, which is also its settlement, and the app that made the call.

It knows counts, nano-dollars and ids; it may not know how a request was planned, sent or priced, nor any surface.
Payloads of projects that retain them lie apart, encrypted, with a life of their own (payload_table.py).
Decided against: payloads in the usage row, which must stay narrow, and an ORM object for each request.
"""
