"""One-time links that sign a person in: `serve` prints one on the terminal, so that a first visit needs no password.

A link is signed and the store holds nothing about it until it is used. It works once, for half an hour, and only from
the machine on which the gateway runs.
"""

import hmac
import secrets
from functools import partial
from ipaddress import ip_address

from gateway.accounts.models import User
from gateway.accounts.second_factor import SecondFactors
from gateway.accounts.sessions import NewSession, Sessions
from gateway.accounts.throttle import Throttle, ThrottleGate
from gateway.accounts.tokens import hash_token
from gateway.clock import SECOND_US
from gateway.errors import Forbidden, Gone, NotFound, RateLimited
from gateway.store.database import Database

LIFETIME_S = 1800
HOUR_S = 3600
HOURLY_ATTEMPTS = 30  # links that a client address may try within an hour
MAX_TOKEN_LENGTH = 256
UNKNOWN = "This sign-in link is not valid. Start the gateway again to get a new one, or sign in with your password."
LINK_EXPIRED = "This sign-in link has expired or was used. Start the gateway again to get a new one."
NOT_LOCAL = "A sign-in link works only on the machine on which the gateway runs. Sign in with your password."


class SignInLinks:
    """Makes and redeems sign-in links. A person with a second factor has to sign in with the password."""

    def __init__(
        self, database: Database, sessions: Sessions, factors: SecondFactors, throttle: Throttle, hash_key: bytes
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._factors = factors
        self._throttle = throttle
        self._hash_key = hash_key

    def find(self, token: str, peer: str) -> User:
        """Return the person of a link without using it. Raises NotFound, Gone (expired), Forbidden (another machine, or
        a second factor) and RateLimited."""
        if not is_loopback(peer):
            raise Forbidden(NOT_LOCAL)
        self._throttle.take(ThrottleGate("sign-in links", peer, HOURLY_ATTEMPTS, HOUR_S))
        signed, _, signature = token[:MAX_TOKEN_LENGTH].replace("\0", "").rpartition(".")
        user_id, ends = (*signed.split("."), "", "")[:2]
        user = self._database.read(partial(User.get_or_none, User.id == user_id, User.status == "active"))
        if user is None or not hmac.compare_digest(_sign(signed, self._hash_key).encode(), signature.encode()):
            raise NotFound(UNKNOWN)
        if int(ends) * SECOND_US <= self._database.now_us():
            raise Gone(LINK_EXPIRED)
        if self._factors.find(user.id).active:
            raise Forbidden("This account has a second factor. Sign in with your password.")
        return user

    def redeem(self, token: str, peer: str, agent: str) -> NewSession:
        """Use a link up and return a session. Raises as `find`, and Gone for a link that was used."""
        user = self.find(token, peer)
        try:
            self._throttle.take(ThrottleGate("sign-in link, use", token, 1, LIFETIME_S))
        except RateLimited:
            raise Gone(LINK_EXPIRED) from None
        return self._sessions.open(user.id, agent)


def make_link_token(database: Database, hash_key: bytes, email: str) -> str:
    """Return the token of a new link for an active person; "" if there is none with this address."""
    user = database.read(partial(User.get_or_none, User.email == email.lower(), User.status == "active"))
    if user is None:
        return ""
    ends = database.now_us() // SECOND_US + LIFETIME_S
    signed = f"{user.id}.{ends}.{secrets.token_hex(8)}"
    return f"{signed}.{_sign(signed, hash_key)}"


def is_loopback(address: str) -> bool:
    """Return whether an address is of this machine."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _sign(signed: str, hash_key: bytes) -> str:
    return hash_token(f"sign-in link\n{signed}", hash_key)
