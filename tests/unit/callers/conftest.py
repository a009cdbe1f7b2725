"""Fixtures of an organization with its owner."""

from support.company import company, make_company, small_company  # noqa: F401
