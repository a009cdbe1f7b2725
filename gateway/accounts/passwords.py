"""Passwords: argon2id, always in a native thread, equally slow for people who do not exist."""

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from gateway.errors import InvalidRequest
from gateway.threads import Threads

SHORTEST, LONGEST = 12, 1024

# Checked when the user is unknown, so that the answer takes as long; nobody has a password for it.
NOBODY = "$argon2id$v=19$m=65536,t=3,p=4$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


def hash_password(threads: Threads, password: str) -> str:
    """The argon2id hash. InvalidRequest unless the password has 12 to 1024 characters."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise InvalidRequest(f"A password needs {SHORTEST} to {LONGEST} characters.", param="password")
    return threads.run(PasswordHasher().hash, password)


def check_password(threads: Threads, password: str, stored: str) -> bool:
    """Whether `password` belongs to `stored`; "" (no password, no such user) is as slow and always False."""
    return threads.run(_verify, password[: LONGEST + 1], stored or NOBODY) and bool(stored)


def _verify(password: str, stored: str) -> bool:
    try:
        return PasswordHasher().verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
