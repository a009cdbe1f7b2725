"""The Anthropic messages format as several providers host it: api.anthropic.com by default, others by their entry.

May not know callers nor any provider by name: hosts differ by quirks of their entry (names in messages.py). Decided
against: the vendor's SDK (with its own pool and retry policy), and repairing a conversation that the format cannot
express by inventing messages.
"""
