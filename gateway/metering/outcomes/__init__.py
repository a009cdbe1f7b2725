"""Outcomes of coding agents: commits, pull requests, lines, accepted edits and active time, as the agents report them.

`names.py` has the names of each agent's telemetry, `outcome_book.py` keeps the sums of a worker until they are stored,
`outcome_table.py` stores them by hour, key, session, agent and model, `outcome_sums.py` answers questions.

The figures are statements of the callers about their own keys, never an input of billing, limits or routing.
"""
