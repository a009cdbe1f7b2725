"""The surfaces: one folder for each dialect that callers speak, and the table of all operations.

A surface reads a body into the neutral form, calls the engine, and writes the answer. Handlers take an Inbound and
give an Outbound and see no Flask. Decided against: hooks around requests, since an order of checks
that is read in one place is the order that holds.
"""
