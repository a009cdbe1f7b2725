"""What the management API and the operator's command change across packages: sign-in, keys with their limits, credits,
members, the first organization.

Each change that touches two packages (a key and its budgets, a grant and the ledger) is one transaction here. It may
not know how requests are answered, nor any dialect.
"""
