"""The fixtures of billing, which tests of this package stand on too."""

from support.billing import account, start_billing, used

__all__ = ["account", "start_billing", "used"]
