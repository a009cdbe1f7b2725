"""Sign-in with password and second factor, or with a passkey, throttled against guessing. Known devices have their own
counters."""

import hmac
import secrets
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import NamedTuple

from gateway.accounts import audit, members
from gateway.accounts.passkeys import Browser, Passkeys
from gateway.accounts.passwords import Passwords, PasswordsBusy
from gateway.accounts.second_factor import INVALID_CODE, SecondFactors
from gateway.accounts.sessions import NewSession, Sessions
from gateway.accounts.sso_requirement import check_password_sign_in
from gateway.callers.models import User
from gateway.callers.throttle import Throttle, ThrottleGate
from gateway.callers.tokens import hash_token
from gateway.clock import DAY_US, SECOND_US
from gateway.errors import Forbidden, GatewayError, Gone, NotFound, RateLimited, Unauthenticated
from gateway.runtime.threads import spawn
from gateway.store.database import Database
from gateway.store.documents import Documents

# One-time links that sign a person in: `serve` prints one on the terminal, so that a first visit needs no password.
#
# A link is signed and the store holds nothing about it until it is used. It works once, for half an hour, and only
# from the machine on which the gateway runs.

LINK_LIFETIME_S = 1800
HOUR_S = 3600
HOURLY_ATTEMPTS = 30  # links that a client address may try within an hour
MAX_TOKEN_LENGTH = 256
UNKNOWN_LINK = (
    "This sign-in link is not valid. Start the gateway again to get a new one, or sign in with your password."
)
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
        """Return the person of a link, which stays valid. Raises NotFound, Gone (expired), Forbidden (another
        machine, or a second factor) and RateLimited."""
        if not is_loopback(peer):
            raise Forbidden(NOT_LOCAL)
        self._throttle.take(ThrottleGate("sign-in links", peer, HOURLY_ATTEMPTS, HOUR_S))
        signed, _, signature = token[:MAX_TOKEN_LENGTH].replace("\0", "").rpartition(".")
        user_id, ends = (*signed.split("."), "", "")[:2]
        user = self._database.read(partial(User.get_or_none, User.id == user_id, User.status == "active"))
        if user is None or not hmac.compare_digest(_sign(signed, self._hash_key).encode(), signature.encode()):
            raise NotFound(UNKNOWN_LINK)
        if int(ends) * SECOND_US <= self._database.now_us():
            raise Gone(LINK_EXPIRED)
        if self._factors.find(user.id).active:
            raise Forbidden("This account has a second factor. Sign in with your password.")
        return user

    def redeem(self, token: str, peer: str, agent: str) -> NewSession:
        """Return a session for a link, which becomes invalid. Raises as `find`, and Gone for a used link."""
        user = self.find(token, peer)
        try:
            self._throttle.take(ThrottleGate("sign-in link, use", token, 1, LINK_LIFETIME_S))
        except RateLimited:
            raise Gone(LINK_EXPIRED) from None
        return self._sessions.open(user.id, agent)


def make_link_token(database: Database, hash_key: bytes, email: str) -> str:
    """Return the token of a new link for an active person; "" if there is none with this address."""
    user = database.read(partial(User.get_or_none, User.email == email.lower(), User.status == "active"))
    if user is None:
        return ""
    ends = database.now_us() // SECOND_US + LINK_LIFETIME_S
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


# Wrong passwords within ATTEMPT_WINDOW_S: per e-mail address and client address, per e-mail address, per client
# address.
ATTEMPT_WINDOW_S = 900
GATES = (("address and place", 10), ("address", 100), ("place", 50))
# A known device or client address has its own counter, so that strangers cannot lock out the owner.
KNOWN = 10
KNOWN_KIND = "known_place"
KNOWN_DEVICE_S = 180 * DAY_US / SECOND_US
TICKET_LIFETIME_S = 300
DAY_S = 86_400
OPENED = 2000  # sessions of one user in a day; each is an entry in the audit trail
PASSKEY_TRIES = 100  # within ATTEMPT_WINDOW_S, from one client address
NOTED = 100  # audit entries for unknown e-mail addresses within ATTEMPT_WINDOW_S


class Place(NamedTuple):
    """The origin of a sign-in: client address, User-Agent and device cookie."""

    peer: str
    agent: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A new session, and the device cookie that makes the device known at the next sign-in."""

    session: NewSession
    device: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """The password is correct and a second factor is required. `ticket` replaces the password for five minutes."""

    ticket: str = field(repr=False)


class SignInService:
    """The sign-in service of a worker. Its counters and known devices are in the store."""

    def __init__(
        self,
        database: Database,
        passwords: Passwords,
        sessions: Sessions,
        throttle: Throttle,
        factors: SecondFactors,
        passkeys: Passkeys,
        hash_key: bytes,
        documents: Documents,
    ) -> None:
        self._database = database
        self._passwords = passwords
        self._sessions = sessions
        self._throttle = throttle
        self._factors = factors
        self._passkeys = passkeys
        self._hash_key = hash_key
        self._documents = documents

    def begin(self, email: str, password: str, place: Place) -> SignedIn | PendingSignIn:
        """Check the password. Return a session, or a ticket if a second factor is required.

        Raises Unauthenticated, Forbidden (deactivated, or single sign-on is required), RateLimited (too many attempts)
        or PasswordsBusy (too many other sign-ins).
        """
        address = email.strip().lower()[:255].replace("\0", "")
        user = self._database.read(partial(User.get_or_none, User.email == address))
        gates, known = self._gates(address, place, user)
        self._throttle.take(*gates)
        try:
            signed_in = members.sign_in(
                self._database, self._passwords, address, password, owner=place.peer, known=known
            )
        except PasswordsBusy:
            self._throttle.forgive(*gates)
            raise
        except GatewayError as error:
            # In the background, so that the response time does not reveal whether the address is known.
            spawn(self._note, user.id if user else "", place.peer, error.code)
            raise
        self._throttle.forgive(*gates)
        check_password_sign_in(self._database, signed_in.id)
        if self._factors.find(signed_in.id).active:
            return PendingSignIn(self._make_ticket(signed_in.id))
        return self._open(signed_in.id, place)

    def finish(self, ticket: str, code: str, place: Place) -> SignedIn:
        """Return a session for a ticket and a code. Raises Unauthenticated or RateLimited."""
        user = self._read_ticket(ticket)
        gate = ThrottleGate("second factor", f"{user.id} {self._nonce(user, place)}", KNOWN, ATTEMPT_WINDOW_S)
        self._throttle.take(gate)
        if not self._factors.check(user.id, code):
            spawn(self._note, user.id, place.peer, "second_factor_wrong")
            raise Unauthenticated(INVALID_CODE, code="second_factor_wrong")
        self._throttle.forgive(gate)
        return self._open(user.id, place)

    def begin_with_passkey(self, browser: Browser, place: Place, ticket: str = "") -> str:
        """Return the options for the browser as JSON: for any passkey or, with a ticket, for those of its person.
        Raises Unauthenticated, RateLimited, InvalidRequest or NotFound."""
        self._throttle.take(ThrottleGate("passkey sign-in, begun", place.peer, PASSKEY_TRIES, ATTEMPT_WINDOW_S))
        user_id = self._read_ticket(ticket).id if ticket else ""
        return self._passkeys.begin_sign_in(browser, user_id)

    def finish_with_passkey(self, browser: Browser, answer: str, place: Place, ticket: str = "") -> SignedIn:
        """Return a session for the browser's answer, which replaces password and code or, with a ticket, the code.
        Raises Unauthenticated, Forbidden (single sign-on is required), RateLimited or InvalidRequest."""
        gate = ThrottleGate("passkey sign-in", place.peer, PASSKEY_TRIES, ATTEMPT_WINDOW_S)
        self._throttle.take(gate)
        expected = self._read_ticket(ticket).id if ticket else ""
        try:
            user_id = self._passkeys.check(browser, answer, expected)
        except Unauthenticated:
            spawn(self._note, expected, place.peer, "passkey_refused")
            raise
        self._throttle.forgive(gate)
        user = self._database.read(partial(User.get_or_none, User.id == user_id, User.status == "active"))
        if user is None:
            raise Unauthenticated("This account was deactivated.", code="passkey_refused")
        check_password_sign_in(self._database, user_id)
        return self._open(user_id, place)

    def _open(self, user_id: str, place: Place) -> SignedIn:
        self._throttle.take(ThrottleGate("sign in, in a day", user_id, OPENED, DAY_S))
        user = self._database.read(partial(User.get_by_id, user_id))
        self._documents.put(KNOWN_KIND, self._place_key(user.email, place.peer), b"", KNOWN_DEVICE_S)
        nonce = self._nonce(user, place) or secrets.token_urlsafe(12)
        return SignedIn(self._sessions.open(user_id, place.agent), f"{nonce}.{self._mac(user, nonce)}")

    def _gates(self, address: str, place: Place, user: User | None) -> tuple[list[ThrottleGate], bool]:
        """Return the counters of the attempt, and whether the device or client address is known for this user."""
        nonce = ""
        if user is not None:
            nonce = self._nonce(user, place)
        if nonce:
            return [ThrottleGate("sign in, known device", f"{address} {nonce}", KNOWN, ATTEMPT_WINDOW_S)], True
        subjects = (f"{address} {place.peer}", address, place.peer)
        gates = [
            ThrottleGate(f"sign in, {what}", subject, maximum, ATTEMPT_WINDOW_S)
            for (what, maximum), subject in zip(GATES, subjects, strict=True)
        ]
        # Read for unknown addresses too: a faster response would reveal that the address is unknown.
        signed_in = self._documents.get(KNOWN_KIND, self._place_key(address, place.peer)) is not None
        known = signed_in and user is not None
        return (gates[:1] if known else gates), known

    def _nonce(self, user: User, place: Place) -> str:
        """Return the nonce of a device cookie that is valid for this user and the current password, otherwise ""."""
        nonce, _, mac = place.device.partition(".")
        valid = nonce and hmac.compare_digest(self._mac(user, nonce).encode(), mac.encode())
        if valid:
            return nonce
        return ""

    def _mac(self, user: User, nonce: str) -> str:
        return hash_token(f"device\n{user.id}\n{nonce}\n{user.password_hash}", self._hash_key)

    def _place_key(self, address: str, peer: str) -> str:
        return hash_token(f"place\n{address}\n{peer}", self._hash_key)

    def _make_ticket(self, user_id: str) -> str:
        user = self._database.read(partial(User.get_by_id, user_id))
        ends = self._database.now_us() // SECOND_US + TICKET_LIFETIME_S
        return f"{user_id}.{ends}.{self._ticket_mac(user, str(ends))}"

    def _read_ticket(self, ticket: str) -> User:
        user_id, _, rest = ticket[:512].replace("\0", "").partition(".")
        ends, _, mac = rest.partition(".")
        user = self._database.read(partial(User.get_or_none, User.id == user_id, User.status == "active"))
        if (
            user is None
            or not hmac.compare_digest(self._ticket_mac(user, ends).encode(), mac.encode())
            or int(ends) * SECOND_US <= self._database.now_us()
        ):
            raise Unauthenticated("This sign-in has expired. Sign in again.", code="session_invalid")
        return user

    def _ticket_mac(self, user: User, ends: str) -> str:
        return hash_token(f"ticket\n{user.id}\n{ends}\n{user.password_hash}", self._hash_key)

    def _note(self, user_id: str, peer: str, code: str) -> None:
        """Record the failure in the audit trail, up to NOTED entries for unknown addresses. Never raises."""
        try:
            if not user_id:
                self._throttle.take(ThrottleGate("audit, unknown address", "", NOTED, ATTEMPT_WINDOW_S))
            now = self._database.now_us()
            subject = user_id or "unknown"
            detail = {"from": peer, "reason": code}
            self._database.write(
                partial(audit.append, "session.refuse", subject, actor="anonymous", at_us=now, detail=detail)
            )
        except (RateLimited, GatewayError):
            return
