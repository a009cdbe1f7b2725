"""The steps of a request in order: plan, admit, attempt, settle. Imports no surface, no dialect and no Flask.

Everything is passed as arguments, because generators outlive the request that made them. Decided against: a list of
pluggable steps ("pipeline"), since the order carries the meaning and is clearest as plain code.
"""
