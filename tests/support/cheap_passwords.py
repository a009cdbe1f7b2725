"""Password hashes that cost a hundredth of the real ones, which `tests/unit/accounts/test_passwords.py` looks at.

The format, the native thread and every decision stay; only argon2's memory and rounds are the least that it takes.
"""

import argon2

from gateway.accounts import passwords

CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def make_cheap() -> None:
    """From now on in this process; hashes made elsewhere are still checked at their own cost."""
    passwords.PasswordHasher = lambda: CHEAP  # type: ignore[assignment,misc]
    passwords.NOBODY = passwords.NOBODY.replace("m=65536,t=3,p=4", "m=8,t=1,p=1")
