"""Rollups: usage summed by hour and by day. Every statistic reads them, and they outlive the usage rows.

All sums are in one table (`rollup_table.py`), one row for each owner (a project or a key), hour and, depending on the
series, model and provider or source. `row_sums.py` sums usage rows, `fold.py` turns the sums into rows of the table,
`job.py` keeps them current, `purge.py` removes old usage rows, `queries.py` answers questions. At any moment

    rollup of an hour  =  its part HELD: the usage rows that are in the table
                              (plus removed rows while its rows are removed piece by piece: `row_sums.py`)
                        + its part REMOVED: the usage rows that were removed.

New rows are added batch by batch in the order of `posted_at`; each batch and the new watermark are one transaction, so
that a crash neither loses nor doubles anything. A row that is committed behind the watermark is detected by counting,
and the part HELD of its hour is computed again. The sums of an hour move from one part to the other in the transaction
that removes its last rows, so an hour can be computed again at any time, whatever is left of it.

This package must not know who may see which usage. Rejected alternative: updating rollups in the transaction of each
settlement, at the expense of the hot path.
"""
