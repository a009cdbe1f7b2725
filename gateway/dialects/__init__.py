"""Wire vocabularies as two-way tables: finish reasons, usage names, error envelopes; one file for each family.

For surfaces and providers only: both sides of one family need the same words. No control flow of requests, no I/O,
no knowledge of routing or money. Decided against: a common superset of all vendors' words.
"""
