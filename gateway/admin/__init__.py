"""Changes across packages for the management API and the operator's commands: sign-in, keys with limits, credits,
members, the first organization.

Each change that touches two packages (a key and its budgets, a grant and the ledger) is one transaction here. It may
not know how requests are answered, nor any dialect.
"""
