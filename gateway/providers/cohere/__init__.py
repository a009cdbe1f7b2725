"""Cohere's chat format, second version: plans, thinking, calls and citations in its own words.

May not know callers, other providers or how a connection is opened. Decided against: the compatibility API, which has
no citations, no plan, no thinking budget and no cached tokens, and the first version with its other roles and names.
"""
