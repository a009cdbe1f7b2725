"""Passkeys of people: their rows, and the challenges that make each answer of a browser valid once.

A challenge is for one purpose, one browser and, except at a sign-in, one person. It is deleted when it is used, so an
answer that is replayed finds none.
"""

import base64
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit
from gateway.callers.throttle import PendingTable, make_room, network_hash
from gateway.callers.tokens import candidates, hash_token
from gateway.clock import SECOND_US
from gateway.errors import Conflict, InvalidRequest, NotFound, RateLimited, Unauthenticated
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.store.database import Database

# The cryptographic part of passkeys (WebAuthn level 3), by py_webauthn: options for browsers, and checks of what they
# answer. It keeps nothing.
#
# Every answer must come from our own origin, and from an authenticator that verified the person (a PIN or
# biometrics).

# Its import takes 260 ms, and only people with passkeys need it.
webauthn = LazyImport("webauthn")
structs = LazyImport("webauthn.helpers.structs")

TIMEOUT_MS = 300_000
MAX_LENGTH = 16_384
RELYING_PARTY_NAME = "llmgateway"
REFUSED_MESSAGE = "The passkey was not accepted. Try again, or sign in with your password."
# Errors that hostile answers cause in the parsers, besides those of the library.
PARSE_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)


class Site(Struct, frozen=True):
    """The address of this gateway as browsers see it: `rp_id` is its host, "" where passkeys cannot be used."""

    rp_id: str
    origin: str


@dataclass(frozen=True, slots=True)
class StoredPasskey:
    """A stored credential; its id is in base64url."""

    id: str
    public_key: bytes = field(repr=False)
    sign_count: int
    transports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential that a browser created. `synced` passkeys are copied between devices by their vendor."""

    id: str
    public_key: bytes = field(repr=False)
    sign_count: int
    transports: tuple[str, ...]
    synced: bool


def site_of(base_url: str) -> Site:
    """Return the site of a public URL. Browsers allow no passkeys for IP addresses, and none without TLS except for
    localhost."""
    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    origin = f"{parts.scheme}://{parts.netloc}"
    try:
        ip_address(host)
    except ValueError:
        if host and (parts.scheme == "https" or host == "localhost" or host.endswith(".localhost")):
            return Site(host, origin)
    return Site("", origin)


def creation_options(site: Site, challenge: bytes, user: tuple[str, str], known: Sequence[StoredPasskey]) -> str:
    """Return the options of a new passkey as JSON; `user` is id and e-mail address."""
    user_id, email = user
    options = webauthn.generate_registration_options(
        rp_id=site.rp_id,
        rp_name=RELYING_PARTY_NAME,
        user_id=user_id.encode(),
        user_name=email,
        user_display_name=email,
        challenge=challenge,
        timeout=TIMEOUT_MS,
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.REQUIRED,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        ),
        exclude_credentials=_descriptors(known),
    )
    return str(webauthn.options_to_json(options))


def request_options(site: Site, challenge: bytes, known: Sequence[StoredPasskey]) -> str:
    """Return the options of a sign-in as JSON; without `known` credentials the person chooses any of this site."""
    options = webauthn.generate_authentication_options(
        rp_id=site.rp_id,
        challenge=challenge,
        timeout=TIMEOUT_MS,
        allow_credentials=_descriptors(known),
        user_verification=structs.UserVerificationRequirement.REQUIRED,
    )
    return str(webauthn.options_to_json(options))


def read_answer(text: str) -> tuple[dict[str, Any], str]:
    """Return the browser's answer and the challenge that it signed, in base64url. Raises InvalidRequest."""
    if len(text) > MAX_LENGTH:
        raise InvalidRequest(REFUSED_MESSAGE)
    try:
        answer = json.loads(text)
        client_data = json.loads(webauthn.base64url_to_bytes(answer["response"]["clientDataJSON"]))
        challenge = client_data["challenge"]
        credential_id = answer["id"]
    except PARSE_ERRORS:
        raise InvalidRequest(REFUSED_MESSAGE) from None
    for part in (challenge, credential_id):
        if not isinstance(part, str) or not part.isascii():
            raise InvalidRequest(REFUSED_MESSAGE)
    return answer, challenge


def check_creation(site: Site, answer: dict[str, Any], challenge: str) -> NewCredential:
    """Return the credential of a browser's answer. Raises InvalidRequest."""
    try:
        verified = webauthn.verify_registration_response(
            credential=answer,
            expected_challenge=webauthn.base64url_to_bytes(challenge),
            expected_rp_id=site.rp_id,
            expected_origin=site.origin,
            require_user_verification=True,
        )
        known = {transport.value for transport in structs.AuthenticatorTransport}
        transports = tuple(
            name for name in answer["response"].get("transports", ())[:8] if isinstance(name, str) and name in known
        )
    except (webauthn.helpers.exceptions.WebAuthnException, *PARSE_ERRORS):
        raise InvalidRequest("The passkey was not accepted. Try again.", code="passkey_refused") from None
    return NewCredential(
        webauthn.helpers.bytes_to_base64url(verified.credential_id),
        verified.credential_public_key,
        verified.sign_count,
        transports,
        verified.credential_backed_up,
    )


def check_request(site: Site, answer: dict[str, Any], challenge: str, known: StoredPasskey) -> int:
    """Return the new counter of signatures. Raises Unauthenticated: a wrong origin, signature or counter."""
    try:
        verified = webauthn.verify_authentication_response(
            credential=answer,
            expected_challenge=webauthn.base64url_to_bytes(challenge),
            expected_rp_id=site.rp_id,
            expected_origin=site.origin,
            credential_public_key=known.public_key,
            credential_current_sign_count=known.sign_count,
            require_user_verification=True,
        )
    except (webauthn.helpers.exceptions.WebAuthnException, *PARSE_ERRORS):
        raise Unauthenticated(REFUSED_MESSAGE, code="passkey_refused") from None
    return int(verified.new_sign_count)


def user_of(answer: dict[str, Any]) -> str:
    """Return the user id that the authenticator stored with the passkey, "" without."""
    handle = answer["response"].get("userHandle") if isinstance(answer.get("response"), dict) else None
    if not isinstance(handle, str):
        return ""
    try:
        return str(webauthn.base64url_to_bytes(handle).decode())
    except PARSE_ERRORS:
        return ""


def _descriptors(known: Sequence[StoredPasskey]) -> list[Any]:
    transports = {transport.value for transport in structs.AuthenticatorTransport}
    return [
        structs.PublicKeyCredentialDescriptor(
            id=webauthn.base64url_to_bytes(credential.id),
            transports=[structs.AuthenticatorTransport(name) for name in credential.transports if name in transports],
        )
        for credential in known
    ]


REGISTER = "register"
SIGN_IN = "sign-in"
SECOND_FACTOR = "second-factor"
CHALLENGE_LIFETIME_S = 300
MAX_CHALLENGES = 20_000  # of the installation
CHALLENGES = PendingTable("passkey_challenge", "hash", "expires_at", "expires_at > 0")
MAX_PASSKEYS = 20  # of a person
MAX_NAME_LENGTH = 120
EXPIRED_MESSAGE = "This attempt has expired or was used. Try again."
UNAVAILABLE_MESSAGE = "Passkeys need an https address with a host name. Open the gateway at its public address."
INSERT_CHALLENGE = (
    "INSERT INTO passkey_challenge (hash, purpose, binding, user_id, network, expires_at) VALUES (?, ?, ?, ?, ?, ?)"
)
COLUMNS = "id, user_id, credential, public_key, sign_count, name, transports, synced, created_at, used_at"


class PasskeyInfo(Struct, frozen=True):
    """A passkey as its person sees it. `used_at_us` is 0 before the first sign-in."""

    id: str
    name: str
    synced: bool
    created_at_us: int
    used_at_us: int


class Browser(Struct, frozen=True):
    """The browser of a ceremony: the gateway's address in it, a secret that only this browser has, and its address."""

    site: Site
    secret: str
    peer: str = ""


class Passkeys:
    """Kept in the store: a passkey works at every worker as soon as it is registered."""

    def __init__(self, database: Database, hash_keys: tuple[bytes, ...]) -> None:
        self._database = database
        self._hash_keys = hash_keys

    def list_passkeys(self, user_id: str) -> list[PasskeyInfo]:
        """Return the passkeys of a person, oldest first."""
        return [PasskeyInfo(row[0], row[5], bool(row[7]), row[8], row[9]) for row in self._rows(user_id)]

    def begin_registration(self, browser: Browser, user_id: str, email: str) -> str:
        """Return the options for a new passkey as JSON. Raises InvalidRequest or RateLimited."""
        known = [_credential(row) for row in self._rows(user_id)]
        if len(known) >= MAX_PASSKEYS:
            raise InvalidRequest(f"You may have {MAX_PASSKEYS} passkeys. Remove one first.")
        challenge = self._make_challenge(REGISTER, browser, user_id)
        return compute(creation_options, browser.site, challenge, (user_id, email), known)

    def register(self, browser: Browser, user_id: str, text: str, name: str) -> PasskeyInfo:
        """Store the passkey of a browser's answer. Raises InvalidRequest or Conflict."""
        name = " ".join(name.split())[:MAX_NAME_LENGTH] or "Passkey"
        answer, challenge = compute(read_answer, text)
        self._use_challenge(REGISTER, browser, user_id, challenge)
        created = compute(check_creation, browser.site, answer, challenge)
        return self._insert(user_id, name, created)

    def begin_sign_in(self, browser: Browser, user_id: str = "") -> str:
        """Return the options of a sign-in as JSON, for the passkeys of a person, or ("") any. Raises InvalidRequest,
        RateLimited, NotFound (the person has none)."""
        known: list[StoredPasskey] = []
        if user_id:
            known = [_credential(row) for row in self._rows(user_id)]
            if not known:
                raise NotFound("You have no passkey.")
        challenge = self._make_challenge(_purpose(user_id), browser, user_id)
        return compute(request_options, browser.site, challenge, known)

    def check(self, browser: Browser, text: str, user_id: str = "") -> str:
        """Return the owner of the passkey that signed the browser's answer. With `user_id` it must be that person.
        Raises Unauthenticated or InvalidRequest."""
        answer, challenge = compute(read_answer, text)
        self._use_challenge(_purpose(user_id), browser, user_id, challenge)
        row = self._find(answer["id"])
        if row is None or (user_id and row[1] != user_id):
            raise Unauthenticated(REFUSED_MESSAGE, code="passkey_refused")
        handle = compute(user_of, answer)
        if handle and handle != row[1]:
            raise Unauthenticated(REFUSED_MESSAGE, code="passkey_refused")
        known = _credential(row)
        count = compute(check_request, browser.site, answer, challenge, known)
        now = self._database.now_us()
        # If two answers have the same counter, one is a copy.
        sql = "UPDATE passkey SET sign_count = ?, used_at = ? WHERE id = ? AND sign_count = ?"
        values = (count, now, row[0], known.sign_count)
        if not self._database.write(lambda: self._database.execute(sql, values).rowcount):
            raise Unauthenticated(REFUSED_MESSAGE, code="passkey_refused")
        owner: str = row[1]
        return owner

    def rename(self, user_id: str, passkey_id: str, name: str) -> None:
        """Give a passkey another name. Raises NotFound or InvalidRequest."""
        name = " ".join(name.split())
        if not 1 <= len(name) <= MAX_NAME_LENGTH:
            raise InvalidRequest(f"A name has 1 to {MAX_NAME_LENGTH} characters.", param="name")
        sql = "UPDATE passkey SET name = ? WHERE id = ? AND user_id = ?"
        self._change(sql, (name, passkey_id, user_id), "passkey.rename", user_id)

    def remove(self, user_id: str, passkey_id: str) -> None:
        """Remove a passkey. Raises NotFound."""
        sql = "DELETE FROM passkey WHERE id = ? AND user_id = ?"
        self._change(sql, (passkey_id, user_id), "passkey.delete", user_id)

    def remove_all(self, user_id: str, *, actor: str) -> int:
        """Remove all passkeys of a person; return their number."""

        def work() -> int:
            count: int = self._database.execute("DELETE FROM passkey WHERE user_id = ?", (user_id,)).rowcount
            if count:
                now = self._database.now_us()
                audit.append("passkey.delete", user_id, actor=actor, at_us=now, detail={"count": count})
            return count

        return self._database.write(work)

    def _insert(self, user_id: str, name: str, created: NewCredential) -> PasskeyInfo:
        info_id = ids.new("passkey")
        hashed = self._hash(created.id)
        transports = ",".join(created.transports)[:255]
        key = base64.b64encode(created.public_key).decode()

        def work() -> int:
            now = self._database.now_us()
            count = self._database.execute("SELECT COUNT(*) FROM passkey WHERE user_id = ?", (user_id,)).fetchone()[0]
            if count >= MAX_PASSKEYS:
                raise InvalidRequest(f"You may have {MAX_PASSKEYS} passkeys. Remove one first.")
            sql = f"INSERT INTO passkey ({COLUMNS}, credential_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            sql += " ON CONFLICT (credential_hash) DO NOTHING"
            values = (info_id, user_id, created.id, key, created.sign_count, name, transports, int(created.synced))
            if not self._database.execute(sql, (*values, now, 0, hashed)).rowcount:
                raise Conflict("This passkey is already registered.", code="passkey_exists")
            audit.append("passkey.create", user_id, actor=user_id, at_us=now, detail={"passkey": info_id})
            return now

        now = self._database.write(work)
        return PasskeyInfo(info_id, name, created.synced, now, 0)

    def _change(self, sql: str, values: tuple[str, ...], action: str, user_id: str) -> None:
        passkey_id = values[-2]

        def work() -> None:
            if not self._database.execute(sql, values).rowcount:
                raise NotFound("You have no such passkey.")
            now = self._database.now_us()
            audit.append(action, user_id, actor=user_id, at_us=now, detail={"passkey": passkey_id})

        self._database.write(work)

    def _make_challenge(self, purpose: str, browser: Browser, user_id: str) -> bytes:
        if not browser.site.rp_id:
            raise InvalidRequest(UNAVAILABLE_MESSAGE)
        challenge = secrets.token_bytes(32)
        text = base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()
        network = network_hash(browser.peer, self._hash_keys[0])
        row = (self._hash(text), purpose, self._hash(browser.secret), user_id, network)

        def work() -> None:
            now = self._database.now_us()
            execute = self._database.execute
            execute("DELETE FROM passkey_challenge WHERE expires_at <= ?", (now,))
            if not make_room(self._database, CHALLENGES, network, MAX_CHALLENGES):
                raise RateLimited("Too many people sign in with passkeys. Try again later.", retry_after=60.0)
            execute(INSERT_CHALLENGE, (*row, now + CHALLENGE_LIFETIME_S * SECOND_US))

        self._database.write(work)
        return challenge

    def _use_challenge(self, purpose: str, browser: Browser, user_id: str, challenge: str) -> None:
        """Delete the challenge. Raises Unauthenticated if it is unknown, expired, used, or of another browser."""
        now = self._database.now_us()
        hashes = candidates(challenge, self._hash_keys)
        bindings = candidates(browser.secret, self._hash_keys)

        def work() -> int:
            marks = ", ".join("?" * len(hashes))
            sql = (
                f"DELETE FROM passkey_challenge WHERE hash IN ({marks}) AND binding IN ({marks}) "
                "AND purpose = ? AND user_id = ? AND expires_at > ?"
            )
            count: int = self._database.execute(sql, (*hashes, *bindings, purpose, user_id, now)).rowcount
            return count

        if not self._database.write(work):
            raise Unauthenticated(EXPIRED_MESSAGE, code="passkey_refused")

    def _find(self, credential_id: str) -> tuple[Any, ...] | None:
        hashes = candidates(credential_id.rstrip("="), self._hash_keys)
        marks = ", ".join("?" * len(hashes))
        sql = f"SELECT {COLUMNS} FROM passkey WHERE credential_hash IN ({marks})"
        row: tuple[Any, ...] | None = self._database.read(lambda: self._database.execute(sql, tuple(hashes)).fetchone())
        return row

    def _rows(self, user_id: str) -> list[tuple[Any, ...]]:
        sql = f"SELECT {COLUMNS} FROM passkey WHERE user_id = ? ORDER BY id"
        return self._database.read(partial(self._fetch_all, sql, (user_id,)))

    def _fetch_all(self, sql: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
        return list(self._database.execute(sql, values).fetchall())

    def _hash(self, text: str) -> str:
        return hash_token(text, self._hash_keys[0])


def _purpose(user_id: str) -> str:
    if user_id:
        return SECOND_FACTOR
    return SIGN_IN


def _credential(row: tuple[Any, ...]) -> StoredPasskey:
    transports = tuple(name for name in row[6].split(",") if name)
    return StoredPasskey(row[2], base64.b64decode(row[3]), row[4], transports)
