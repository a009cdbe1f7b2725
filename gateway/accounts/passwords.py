"""Passwords: argon2id, always in a native thread, equally slow for people who do not exist."""

from functools import partial
from typing import Any, TypeVar

from gateway.errors import InvalidRequest, Unavailable
from gateway.runtime.fair_threads import FairThreads, QueueFull
from gateway.runtime.lazy_import import LazyImport

# Loaded with the first password.
argon2 = LazyImport("argon2")

T = TypeVar("T")

MIN_LENGTH = 12
MAX_LENGTH = 1024
# A hash takes 64 MB and some 70 ms of a core, so one at a time: a queue of sixteen is over after about a second.
CONCURRENT_HASHES = 1
MAX_WAITING = 16
WAITING_EACH = 8
RETRY_S = 2.0
NICE = 10  # of the thread, so that sign-ins yield the processor to requests in progress

# Checked when the user is unknown, so that the response takes as long. No password matches it.
UNKNOWN_USER_HASH = "$argon2id$v=19$m=65536,t=3,p=4$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


class PasswordsBusy(Unavailable):
    """As many passwords wait to be checked as may; nothing was checked."""

    code = "sign_in_busy"


class Passwords:
    """Hashes and checks passwords in a thread apart from the store's, which every request needs.

    Owners, which are addresses or users, take turns. Sign-ins that are `known` (from a device or place that signed in
    before, with a live session or an invitation) have a separate queue, which goes first and which strangers cannot
    fill.
    """

    def __init__(self) -> None:
        self._threads = FairThreads(
            CONCURRENT_HASHES, each=CONCURRENT_HASHES, max_waiting=MAX_WAITING, max_each=WAITING_EACH, nice=NICE
        )

    @property
    def waiting(self) -> int:
        """Passwords that wait to be hashed."""
        return self._threads.waiting

    def hash(self, password: str, owner: str = "", *, known: bool = True) -> str:
        """The argon2id hash. InvalidRequest unless the password has 12 to 1024 characters; PasswordsBusy."""
        if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
            raise InvalidRequest(f"A password needs {MIN_LENGTH} to {MAX_LENGTH} characters.", param="password")
        return self._run(owner, partial(_hash, password), known)

    def check(self, password: str, stored: str, owner: str = "", *, known: bool = True) -> bool:
        """Return whether `password` belongs to `stored`; "" (no password, no such user) is as slow and always False.
        PasswordsBusy."""
        matches = self._run(owner, partial(_verify, password[: MAX_LENGTH + 1], stored or UNKNOWN_USER_HASH), known)
        return matches and bool(stored)

    def close(self) -> None:
        """End the thread."""
        self._threads.close()

    def _run(self, owner: str, work: partial[T], known: bool) -> T:
        try:
            return self._threads.run(owner, work, urgent=known)
        except QueueFull:
            raise PasswordsBusy("Too many people are signing in; try again.", retry_after=RETRY_S) from None


def make_hasher() -> Any:
    """Return a hasher with the library's current parameters."""
    return argon2.PasswordHasher()


def _hash(password: str) -> str:
    hashed: str = make_hasher().hash(password)
    return hashed


def _verify(password: str, stored: str) -> bool:
    try:
        matches: bool = make_hasher().verify(stored, password)
        return matches
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
