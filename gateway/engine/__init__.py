"""The order of steps of a request: plan, admit, attempt, settle. It imports no surface, no dialect and no Flask.

Everything comes in as arguments, because generators outlive the request that made them. Decided against: a list of
pluggable steps ("pipeline"), since the order is the meaning and is read best as plain code.
"""
