"""Engines on the operator's own machines: which models each serves right now, as entries of the catalogue.

They speak the OpenAI format, so requests need nothing of their own. May not know callers. Decided against: one
adapter an engine (they differ in how they list their models only) and guessing addresses (a base URL is the switch).
"""
