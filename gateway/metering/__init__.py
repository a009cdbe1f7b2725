"""What was used: one narrow row for each upstream attempt, which is also its settlement, and which app asked.

It knows counts, nano-dollars and ids; it may not know how a request was planned, sent or priced, nor any surface.
Decided against: payloads in the usage row (they have a retention of their own), and an ORM object for each request.
"""
