"""Inference engines on the operator's own machines: which models each serves right now, as entries of the catalogue.

They use the OpenAI format, so their requests need no protocol. May not know callers. Decided against: one adapter per
engine (they differ only in how they list their models) and guessing addresses (a base URL enables an engine).
"""
