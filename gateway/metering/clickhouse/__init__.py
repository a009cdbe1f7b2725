"""Usage in ClickHouse: rows are delivered in batches, and reports may be read from there.

`clickhouse_http` speaks ClickHouse's HTTP interface, `sink` describes the delivered table and delivers its rows,
`clickhouse_reports` computes reports, and `clickhouse_log` reads the request log. The tables of the database stay the
source: what was delivered can be delivered again.
"""
