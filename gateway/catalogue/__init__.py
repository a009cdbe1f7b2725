"""The catalogue: which models exist, who serves them, where, and at what price. It is data, checked at load and
replaced as a whole.

The package may know the neutral types of usage and video requests, and nothing of callers, policies, health or wire
formats; credentials are looked up in an environment that is passed in.

Rejected alternatives: a price table in the database (a correction must be reviewable and equal on every worker),
prices as floats (a token may cost less than a nano-dollar), fetching vendors' model lists at run time (serving must
work offline and start fast), and one class for each provider (a provider is one TOML file).
"""
