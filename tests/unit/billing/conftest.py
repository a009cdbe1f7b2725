"""The fixtures of billing."""

from support.billing import account, start_billing, used

__all__ = ["account", "start_billing", "used"]
