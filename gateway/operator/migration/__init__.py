"""Migration from other gateways: what their configuration means here, and a report of what has no counterpart.

`litellm_models` reads models and settings, `litellm_accounts` keys, teams and budgets; `litellm_command` is the
command.
The meaning of names is data: `config/migration/litellm.toml`.
"""
