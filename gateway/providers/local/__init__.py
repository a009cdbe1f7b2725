"""Discovery of the models that inference engines on the operator's machines serve, as catalogue entries.

The engines use the OpenAI format, so their requests need no separate protocol. The package does not know callers.
Decided against: one adapter per engine (engines differ only in how they list their models) and guessing addresses (a
base URL enables an engine).
"""
