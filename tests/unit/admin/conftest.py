"""The fixtures of billing, which tests of this package stand on too."""

from unit.billing.conftest import account, house, used

__all__ = ["account", "house", "used"]
