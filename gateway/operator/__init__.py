"""The operator's commands, one module a subject. `gateway.operator.command` loads a module when its command is named.

They call the packages below exactly as the surfaces do and print plain text; they may not know Flask or any wire
format. Decided against: a second way into the tables, and prompts for anything but secrets (an operator's command runs
in scripts).
"""
