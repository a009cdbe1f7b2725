"""Billing: what a request may cost, what it did cost, and the books that record it.

Admission reserves the upper bound of a request's cost, an intent goes to the crash journal before each upstream call,
the settlement writes usage row and spending as one entry; recovery, reconciliation, re-rating and the closing of hours
keep the books true afterwards. It knows prices, budgets and usage rows; it may not know how a request is planned or
answered, nor any dialect. Decided against: pricing inside of surfaces or providers, since an amount that is made in two
places differs some day.
"""
