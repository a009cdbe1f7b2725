"""Rollups: usage summed up by hour and by day, which every statistic reads, and which outlive the usage rows.

Sums lie in one table (`table.py`), one row for each owner (a project or a key), hour and, where a series has them,
model and provider or source. `rows.py` sums usage rows up, `fold.py` makes the rows of the table of that, `job.py`
keeps them current, `purge.py` removes old usage rows, `reading.py` answers questions. At any moment

    what a rollup tells of an hour  =  its part HELD, the usage rows that lie in the table
                                       (and, while its rows go piece by piece, those that went: `pieces.py`),
                                     + its part REMOVED, those that were removed.

New rows are added batch by batch in the order of `posted_at`, each batch and the watermark behind it in one
transaction, so that a crash at any point loses and doubles nothing. A row that was committed behind the watermark's
back is noticed by counting, and the part HELD of its hour is computed anew. What the rows of an
hour counted moves from one part to the other in the transaction that removes the last of them, so an hour may be
computed anew at any time, whatever is left of it.

It may not know who may see what. Decided against: counting in the transaction of each settlement, which the hot path
would pay for.
"""
