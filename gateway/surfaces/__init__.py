"""The surfaces: one folder for each dialect that callers use, and the table of all operations.

A surface parses a body into the neutral form, calls the engine, and writes the answer. Handlers take an Inbound and
return an Outbound and see no Flask. Decided against: hooks around requests, since checks are easiest to verify when
their order is read in one place.
"""
