"""Wire vocabularies as two-way tables: finish reasons, usage names, error envelopes; one file for each family.

They are for surfaces and providers only, because both sides of a family need the same names. No control flow of
requests, no I/O, no knowledge of routing or money. Rejected alternative: a common superset of all vendors' names.
"""
