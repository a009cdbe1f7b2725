"""Second factors: one-time codes by time (TOTP, RFC 6238) and recovery codes, each good for one sign-in.

The secret is encrypted at rest, recovery codes are kept as keyed hashes.
"""

import base64
import hashlib
import hmac
import json
import secrets
import struct
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from gateway.accounts import audit
from gateway.accounts.members import end_sign_ins
from gateway.callers.tokens import candidates, hash_token
from gateway.callers.vault import Vault
from gateway.clock import SECOND_US
from gateway.errors import Conflict, NotFound, Unauthenticated
from gateway.store.database import Database

# The defaults of authenticator apps (RFC 6238, section 4): SHA-1, six digits, 30 seconds.
STEP_S = 30
DIGITS = 6
SECRET_BYTES = 20
DRIFT = 1  # steps by which a clock may be ahead or behind (RFC 6238, section 5.2)
RECOVERY_CODES = 10
ISSUER = "llmgateway"
INVALID_CODE = "The code is wrong, already used or expired. Wait for the next code."


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The secret for an authenticator app, shown once; `uri` contains the same secret."""

    secret: str = field(repr=False)
    uri: str = field(repr=False)


class FactorStatus(Struct, frozen=True):
    """The state of a second factor: whether it is in force, since when, and how many recovery codes are left.
    `by_passkey`: it was enabled for passkeys, without an authenticator app."""

    active: bool = False
    since_us: int = 0
    codes_left: int = 0
    by_passkey: bool = False


class SecondFactors:
    """Kept in the store: in force for the next sign-in at any worker."""

    def __init__(self, database: Database, vault: Vault, hash_keys: tuple[bytes, ...]) -> None:
        self._database = database
        self._vault = vault
        self._hash_keys = hash_keys

    def find(self, user_id: str) -> FactorStatus:
        """Return the status of a user's second factor."""
        row = self._read(user_id)
        if row is None or row[1] is None:
            return FactorStatus()
        return FactorStatus(True, row[1], len(json.loads(row[3])), bool(row[4]))

    def begin(self, user_id: str, email: str) -> Enrolment:
        """A new secret, which counts once a code of it is confirmed. Conflict when one is in force."""
        secret = base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode()
        sealed = self._vault.seal(secret)
        sql = (
            "INSERT INTO second_factor (user_id, secret, confirmed_at, last_step, codes, created_at) "
            "VALUES (?, ?, NULL, 0, '[]', ?) ON CONFLICT (user_id) DO UPDATE SET secret = excluded.secret, "
            "last_step = 0, created_at = excluded.created_at WHERE second_factor.confirmed_at IS NULL"
        )
        now = self._database.now_us()
        if not self._database.write(lambda: self._database.execute(sql, (user_id, sealed, now)).rowcount):
            raise Conflict("A second factor is already enabled. Remove it first.", code="second_factor_exists")
        label = quote(f"{ISSUER}:{email}", safe="")
        return Enrolment(secret, f"otpauth://totp/{label}?secret={secret}&issuer={ISSUER}")

    def confirm(self, user_id: str, code: str, current_session: str = "") -> list[str]:
        """Put it in force by a code of it; recovery codes, shown once. Other sessions of the user end. NotFound
        (nothing was begun), Conflict, Unauthenticated (code second_factor_wrong)."""
        row = self._read(user_id)
        if row is None:
            raise NotFound("Set up a new secret first.")
        if row[1] is not None:
            raise Conflict("A second factor is already enabled.", code="second_factor_exists")
        step = self._matching_step(row, code)
        if not step:
            raise Unauthenticated(INVALID_CODE, code="second_factor_wrong")
        codes = _make_codes()
        hashes = json.dumps([self._hash(user_id, recovery_code) for recovery_code in codes])
        now = self._database.now_us()

        def work() -> None:
            sql = (
                "UPDATE second_factor SET confirmed_at = ?, last_step = ?, codes = ? "
                "WHERE user_id = ? AND confirmed_at IS NULL AND secret = ?"
            )
            if not self._database.execute(sql, (now, step, hashes, user_id, row[0])).rowcount:
                raise Conflict("Another request changed the second factor. Start again.")
            end_sign_ins(user_id, current_session)
            audit.append("second_factor.create", user_id, actor=user_id, at_us=now)

        self._database.write(work)
        return codes

    def enable_for_passkeys(self, user_id: str, current_session: str = "") -> list[str]:
        """Put a second factor in force that passkeys answer, without an authenticator app; recovery codes, shown once.
        Other sessions of the user end. Conflict when one is in force."""
        codes = _make_codes()
        hashes = json.dumps([self._hash(user_id, recovery_code) for recovery_code in codes])
        # The secret is random and discarded, so no code of an app is valid.
        sealed = self._vault.seal(base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode())
        now = self._database.now_us()
        sql = (
            "INSERT INTO second_factor (user_id, secret, confirmed_at, last_step, codes, created_at, by_passkey) "
            "VALUES (?, ?, ?, 0, ?, ?, 1) ON CONFLICT (user_id) DO UPDATE SET secret = excluded.secret, "
            "confirmed_at = excluded.confirmed_at, codes = excluded.codes, by_passkey = 1 "
            "WHERE second_factor.confirmed_at IS NULL"
        )

        def work() -> None:
            if not self._database.execute(sql, (user_id, sealed, now, hashes, now)).rowcount:
                raise Conflict("A second factor is already enabled.", code="second_factor_exists")
            end_sign_ins(user_id, current_session)
            audit.append("second_factor.create", user_id, actor=user_id, at_us=now, detail={"by": "passkey"})

        self._database.write(work)
        return codes

    def check(self, user_id: str, code: str) -> bool:
        """Return whether a code of time or a recovery code is right; it is used up by that, at every worker."""
        row = self._read(user_id)
        if row is None or row[1] is None:
            return False
        step = self._matching_step(row, code)
        if step:
            sql = "UPDATE second_factor SET last_step = ? WHERE user_id = ? AND last_step < ?"
            return self._database.write(lambda: self._database.execute(sql, (step, user_id, step)).rowcount) > 0
        return self._use_recovery(user_id, row[3], code)

    def remove(self, user_id: str, *, actor: str) -> bool:
        """Take it away; whether there was one."""

        def work() -> bool:
            deleted = self._database.execute("DELETE FROM second_factor WHERE user_id = ?", (user_id,)).rowcount > 0
            if deleted:
                audit.append("second_factor.delete", user_id, actor=actor, at_us=self._database.now_us())
            return deleted

        return self._database.write(work)

    def _use_recovery(self, user_id: str, stored_hashes: str, code: str) -> bool:
        hashes = json.loads(stored_hashes)
        text = code.strip().lower().replace(" ", "")
        used = {name for name in self._names(user_id, text) for known in hashes if hmac.compare_digest(known, name)}
        if not used:
            return False
        left = json.dumps([known for known in hashes if known not in used])

        def work() -> bool:
            sql = "UPDATE second_factor SET codes = ? WHERE user_id = ? AND codes = ?"
            if not self._database.execute(sql, (left, user_id, stored_hashes)).rowcount:
                return False
            now = self._database.now_us()
            audit.append("second_factor.use_recovery_code", user_id, actor=user_id, at_us=now)
            return True

        return self._database.write(work)

    def _matching_step(self, row: tuple[Any, ...], code: str) -> int:
        """Return the time step that matches the code and is later than the last used step; 0 if there is none."""
        digits = code.strip().replace(" ", "")
        if len(digits) != DIGITS or not digits.isascii() or not digits.isdigit():
            return 0
        secret = base64.b32decode(self._vault.open(row[0]))
        now = self._database.now_us() // (STEP_S * SECOND_US)
        steps = [step for step in range(now - DRIFT, now + DRIFT + 1) if step > row[2]]
        return next((step for step in steps if hmac.compare_digest(code_at(secret, step), digits)), 0)

    def _names(self, user_id: str, code: str) -> list[str]:
        return candidates(f"recovery\n{user_id}\n{code}", self._hash_keys)

    def _hash(self, user_id: str, code: str) -> str:
        return hash_token(f"recovery\n{user_id}\n{code}", self._hash_keys[0])

    def _read(self, user_id: str) -> tuple[Any, ...] | None:
        """Sealed secret, when it was confirmed, the last step that was used, hashes of recovery codes, by passkey."""
        sql = "SELECT secret, confirmed_at, last_step, codes, by_passkey FROM second_factor WHERE user_id = ?"
        row: tuple[Any, ...] | None = self._database.read(lambda: self._database.execute(sql, (user_id,)).fetchone())
        return row


def code_at(secret: bytes, step: int) -> str:
    """The code of a step (RFC 4226, section 5.3)."""
    digest = hmac.new(secret, struct.pack(">Q", step), hashlib.sha1).digest()
    offset = digest[-1] & 15
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFFFFFF
    return str(number % 10**DIGITS).zfill(DIGITS)


def _make_codes() -> list[str]:
    """Recovery codes of ten hex digits each, too many to guess under the throttle."""
    texts = [secrets.token_hex(5) for _ in range(RECOVERY_CODES)]
    return [f"{text[:5]}-{text[5:]}" for text in texts]
