"""Device codes: a client without a browser asks, a signed-in person approves, the client collects a session, or the
tokens of a grant.

RFC 8628 with the product's figures: ten minutes, a poll every five seconds, a few known clients.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.sessions import PREFIX, NewSession, Sessions
from gateway.callers import tokens as tokens_module
from gateway.callers.models import DeviceCode, DeviceStatus, User
from gateway.callers.throttle import PendingTable, make_room, network_hash
from gateway.clock import SECOND_US
from gateway.errors import Conflict, InvalidRequest, NotFound, RateLimited
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

CLIENTS = frozenset({"llmgateway-cli"})  # these get a session, all others the tokens of a grant
LIFETIME_S = 600
INTERVAL_S = 5
MAX_WAITING = 20_000
TABLE = PendingTable("device_code", "id", "created_at", "status <> 'approved'")
RETRY_S = 60.0
# Clients sleep the interval between answer and request; the network may shorten what arrives.
INTERVAL_TOLERANCE_S = 1
# Without vowels, so that no code spells a word (RFC 8628, section 6.1).
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
# The error code of each state in RFC 8628, section 3.5, and a message for people.
REFUSALS = {
    "pending": ("authorization_pending", "The request has not been approved yet."),
    "slow_down": ("slow_down", "Poll less often."),
    "denied": ("access_denied", "The request was denied."),
    "expired": ("expired_token", "The code is unknown, used or expired. Start again."),
}
PAGE = "/console/device"

Status = DeviceStatus


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """The codes that the client receives: its secret code, and the code that a person compares."""

    device_code: str = field(repr=False)
    user_code: str = ""
    expires_in_s: int = LIFETIME_S
    interval_s: int = INTERVAL_S


class DeviceRequest(Struct, frozen=True):
    """A request as its approver sees it."""

    user_code: str
    client: str
    status: Status
    expires_at_us: int


class Devices:
    """Requests that wait, or are over and were not removed yet, are at most MAX_WAITING of the installation. Where
    these are too many, those that are not approved give way, those of the networks with most of them first."""

    def __init__(self, database: Database, hash_keys: Secrets, sessions: Sessions) -> None:
        self._database = database
        self._hash_keys = hash_keys.hash_keys
        self._sessions = sessions

    def start(self, client: str, peer: str) -> DeviceGrant:
        """A new request of a known client at a client address."""
        grant = DeviceGrant(ids.token("llmgdev_"), _make_user_code())
        network = network_hash(peer, self._hash_keys[0])
        now = self._database.now_us()

        def work() -> None:
            if not make_room(self._database, TABLE, network, MAX_WAITING):
                raise RateLimited("Too many devices are waiting for approval. Try again later.", retry_after=RETRY_S)
            DeviceCode.insert(
                id=ids.new("dev"),
                code_hash=tokens_module.hash_token(grant.device_code, self._hash_keys[0]),
                user_code=grant.user_code,
                client=client,
                network=network,
                created_at=now,
                expires_at=now + LIFETIME_S * SECOND_US,
            ).execute()

        self._database.write(work)
        return grant

    def collect(self, device_code: str, client: str) -> tuple[Status, NewSession | None]:
        """Return the status of a request. An approved request yields a session, once. The status of an unknown code is
        "expired"."""
        hashes = tokens_module.candidates(device_code, self._hash_keys)
        session_id = ids.new("ses")
        token = ids.token(PREFIX)
        now = self._database.now_us()

        def work() -> tuple[Status, NewSession | None]:
            status, row = self._use(hashes, client, now)
            if row is None or row.user_id is None:
                return status, None
            info = self._sessions.insert(session_id, token, row.user_id, now, row.client, row.sso_login or "")
            return status, NewSession(info, token)

        return self._database.write(work)

    def collect_grant(self, device_code: str, client: str) -> tuple[Status, str]:
        """Return the status of a request, and the id of the grant of an approved request, once. Both as `collect`."""
        hashes = tokens_module.candidates(device_code, self._hash_keys)
        now = self._database.now_us()

        def work() -> tuple[Status, str]:
            status, row = self._use(hashes, client, now)
            if row is None:
                return status, ""
            return status, row.grant_id

        return self._database.write(work)

    def find(self, user_code: str) -> DeviceRequest:
        """The request with this code, however it was typed. NotFound: unknown or expired."""
        now = self._database.now_us()
        return self._database.read(lambda: _info(_load(user_code, now)))

    def decide(
        self,
        user_code: str,
        user_id: str,
        approve: bool,
        sso_login: str = "",
        make_grant: Callable[[int], str] | None = None,
    ) -> DeviceRequest:
        """Approve or deny on behalf of a user; the device's session depends on `sso_login`, as the approver's does.
        `make_grant` inserts the grant for clients that need one, within the transaction, and returns its id. NotFound,
        Conflict (already decided), InvalidRequest (a grant is needed)."""
        now = self._database.now_us()

        def work() -> DeviceRequest:
            row = _load(user_code, now)
            if row.status != "pending":
                raise Conflict("This code has already been used.", code="device_code_used")
            if approve and (row.client in CLIENTS) != (make_grant is None):
                raise InvalidRequest("This client requires a project; choose one.", param="projectId")
            if not User.select().where(User.id == user_id, User.status == "active").exists():
                raise NotFound(f"There is no active user {user_id}.")
            if approve:
                row.status = "approved"
            else:
                row.status = "denied"
            row.user_id = user_id
            row.sso_login = sso_login or None
            if approve and make_grant is not None:
                row.grant_id = make_grant(now)
            row.save()
            audit.append(f"device.{'approve' if approve else 'deny'}", row.id, actor=user_id, at_us=now)
            return _info(row)

        return self._database.write(work)

    def _use(self, hashes: list[str], client: str, now: int) -> tuple[Status, DeviceCode | None]:
        """Return the status of a code, and its row if it is approved; within a transaction that uses the code."""
        row = DeviceCode.get_or_none(DeviceCode.code_hash.in_(hashes), DeviceCode.client == client)
        if row is None or row.expires_at <= now:
            return "expired", None
        if row.status == "pending":
            return self._wait(row, now), None
        # Deleting the row uses the code, so that it works only once.
        if not DeviceCode.delete().where(DeviceCode.id == row.id).execute():
            return "expired", None
        if row.status == "denied" or row.user_id is None:
            return "denied", None
        return "approved", row

    def _wait(self, row: DeviceCode, now: int) -> Status:
        early = now - row.polled_at < (INTERVAL_S - INTERVAL_TOLERANCE_S) * SECOND_US
        DeviceCode.update(polled_at=now).where(DeviceCode.id == row.id).execute()
        if early:
            return "slow_down"
        return "pending"


def read_user_code(text: str) -> str:
    """A code as it is kept: capitals with a dash in the middle, however it was typed."""
    letters = re.sub(r"[^A-Z0-9]", "", text.upper())[:16]
    return f"{letters[:4]}-{letters[4:]}"


def _make_user_code() -> str:
    return read_user_code("".join(secrets.choice(LETTERS) for _ in range(8)))


def _load(user_code: str, now: int) -> DeviceCode:
    row = DeviceCode.get_or_none(DeviceCode.user_code == read_user_code(user_code))
    if row is None or row.expires_at <= now:
        raise NotFound(
            "This code is unknown or has expired. Request a new code on the device.", code="device_code_unknown"
        )
    return row


def _info(row: DeviceCode) -> DeviceRequest:
    return DeviceRequest(row.user_code, row.client, row.status, row.expires_at)
