"""Callers: their keys, rules and credentials, which is all that requests read of the accounts."""
