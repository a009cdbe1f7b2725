"""The fixtures of billing."""

from support.billing import account, house, used

__all__ = ["account", "house", "used"]
