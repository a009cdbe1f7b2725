"""Cohere's chat format, version 2: plans, thinking, tool calls and citations in its own fields.

May not know callers, other providers or how a connection is opened. Decided against: the compatibility API, which has
no citations, no plan, no thinking budget and no cached tokens, and version 1 with its other roles and names.
"""
