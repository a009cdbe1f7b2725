"""The fixtures of billing, which tests of this package stand on too."""

from support.billing import account, house, used

__all__ = ["account", "house", "used"]
