"""Reports on an account: whose key it is, what its project used, and by what.

Functions that every surface shares; who asks is a `ReportScope`, made of what a surface knows about its caller, and no
argument can widen it. They read rollups alone, so a report of a year costs what one of a day does, reached limits do
not matter, and usage rows may be gone. A surface that asks checks that the caller's key is in force.

    reports = services.billing.reports                  # gateway.reports.usage_reports.Reports
    scope = scope_of_caller(caller)                     # gateway.reports.scope; Forbidden: a customer's key
    reports.get_account(scope) -> dict
    reports.get_usage(scope, from_date=None, to_date=None, granularity="day") -> dict
    reports.get_usage_breakdown(scope, group_by, sort_by="requests", from_date=None, to_date=None,
                                limit=10, offset=0) -> dict

Dates are "YYYY-MM-DD" in UTC, both included; `granularity` is day or hour; `group_by` provider, model, app or api_key;
`sort_by` requests, cost or tokens. The answers are JSON objects as tools give them. InvalidRequest names the argument
that is wrong, Unavailable means that the store is away: never a report of zeros.

Decided against: numbers as strings. These are statistics; what is exact is the ledger.
"""
