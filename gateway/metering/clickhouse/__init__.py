"""Usage in ClickHouse: rows are delivered in batches, and reports may be read from there.

`client` speaks ClickHouse's HTTP interface, `usage_rows` describes the delivered table, `sink` delivers, and `answers`
computes reports. The tables of the database stay the source: what was delivered can be delivered again.
"""
