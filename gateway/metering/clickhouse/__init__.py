"""Usage in ClickHouse: rows are delivered in batches, and reports may be read from there.

`clickhouse_http` speaks ClickHouse's HTTP interface, `delivered_rows` describes the delivered table, `sink` delivers,
and `clickhouse_reports` computes reports. The tables of the database stay the source: what was delivered can be
delivered again.
"""
