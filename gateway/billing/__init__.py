"""Billing: cost bounds before a request, cost afterwards, and the books that record it.

Admission reserves the upper bound of a request's cost. An intent is written to the crash journal before each upstream
call. The settlement writes usage row and spending as one entry. Recovery, reconciliation, re-rating and the closing of
hours keep the books correct afterwards. This package knows prices, budgets and usage rows; it must not know how a
request is planned or answered, nor any dialect. Rejected alternative: pricing inside surfaces or providers, because two
implementations of an amount diverge sooner or later.
"""
