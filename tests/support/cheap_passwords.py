"""Password hashes at a hundredth of the real cost, which `tests/unit/accounts/test_passwords.py` checks.

The format, the native thread and every decision stay the same; only argon2's memory and rounds are minimal.
"""

import argon2

from gateway.accounts import passwords

CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def make_cheap() -> None:
    """Use cheap hashes in this process; hashes from elsewhere are still checked at their real cost."""
    passwords.make_hasher = lambda: CHEAP
    passwords.UNKNOWN_USER_HASH = passwords.UNKNOWN_USER_HASH.replace("m=65536,t=3,p=4", "m=8,t=1,p=1")
