"""The Anthropic messages format, for api.anthropic.com and for the other hosts of the format in the catalogue.

The package knows neither callers nor providers by name: hosts differ by the quirks of their catalogue entries (names in
host_rules.py). Decided against: the vendor's SDK (with its own connection pool and retry policy), and inventing
messages to repair a conversation that the format cannot express.
"""
