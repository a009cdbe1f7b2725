"""Version 2 of Cohere's chat format, which has fields for plans, thinking, tool calls and citations.

The package knows neither callers nor other providers nor how a connection is opened. Decided against: the compatibility
API, which has no citations, plan, thinking budget or cached tokens, and version 1, which has other roles and names.
"""
