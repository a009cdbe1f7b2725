"""Which models exist, who serves them, where, and at what price: data, checked at load and swapped whole.

It may know the neutral counts of usage and wishes for videos, and nothing of callers, policies, health or wire formats;
credentials are looked up in an environment that is passed in. Decided against: a price table in the database (a
correction must be reviewable and the same on every worker), prices as floats (a token may cost less than a
nano-dollar), asking vendors for their model lists at run time (serving must work offline and start fast), and one class
a provider (a provider is one TOML file).
"""
