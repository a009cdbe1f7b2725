"""Usage reports of an account: the key's account, the usage of its project, and a breakdown of that usage.

All surfaces share these functions. A `ReportScope` is derived from the authenticated caller, and no argument can widen
it. Reports read only rollups: a report of a year costs as much as one of a day, reached limits do not matter, and usage
rows may have been removed. The surface must check that the caller's key is active.

    reports = services.billing.reports                  # gateway.reports.usage_reports.Reports
    scope = scope_of_caller(caller)                     # gateway.reports.usage_reports; Forbidden: a customer's key
    reports.get_account(scope) -> AccountReport
    reports.get_usage(scope, from_date=None, to_date=None, granularity="day") -> UsageReport
    reports.get_usage_breakdown(scope, group_by, sort_by="requests", from_date=None, to_date=None,
                                limit=10, offset=0) -> BreakdownReport

Dates are "YYYY-MM-DD" in UTC, both inclusive; `granularity` is day or hour; `group_by` provider, model, app or api_key;
`sort_by` requests, cost or tokens. The results (`report_answers`) are JSON objects for tools. InvalidRequest names the
invalid argument; Unavailable means that the store is down, so an outage never looks like zero usage.

Rejected alternative: numbers as strings. These are statistics; the ledger holds exact amounts.
"""
