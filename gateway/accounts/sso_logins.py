"""Sign-ins with identity providers: sessions depend on them, and end with them.

A sign-in holds the provider's refresh token. With it the provider is asked at intervals whether the person may still
sign in; until `valid_until` an unavailable provider ends nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import peewee

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.models import SsoLogin
from gateway.callers.models import DeviceCode, Session
from gateway.callers.vault import Vault
from gateway.clock import SECOND_US
from gateway.configuration.configured_providers import SingleSignOn
from gateway.store.database import Database

NO_CHECK = 0
MAX_ID_LENGTH = 255
MAX_ID_TOKEN_HINT = 6000  # an ID token in the query of an address
FIRST_RETRY_S = 60
MAX_DOUBLINGS = 6
LEASE_S = 120  # a worker that claimed a check has this time; then another one repeats it


@dataclass(frozen=True, slots=True)
class NewLogin:
    """Statements of the provider at a sign-in."""

    user_id: str
    organization_id: str
    provider_id: str
    issuer: str
    subject: str
    sid: str = ""
    refresh_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class DueLogin:
    """A sign-in that is due for a check with its provider."""

    id: str
    user_id: str
    organization_id: str
    provider_id: str
    issuer: str
    subject: str
    refresh_token: str = field(repr=False)
    failures: int


class SsoLogins:
    """All sign-ins with identity providers, in the store."""

    def __init__(self, database: Database, vault: Vault, settings: SingleSignOn) -> None:
        self._database = database
        self._vault = vault
        self._settings = settings

    def create(self, login: NewLogin) -> str:
        """Store a sign-in and return its id."""
        login_id = ids.new("sso")
        sealed = self._vault.seal(login.refresh_token)
        hint = ""
        if len(login.id_token) <= MAX_ID_TOKEN_HINT:
            hint = self._vault.seal(login.id_token)

        def work() -> None:
            now = self._database.now_us()
            SsoLogin.insert(
                id=login_id,
                user_id=login.user_id,
                organization=login.organization_id,
                provider=login.provider_id,
                issuer=login.issuer,
                subject=login.subject,
                sid=login.sid[:MAX_ID_LENGTH],
                refresh_token=sealed,
                id_token_hint=hint,
                created_at=now,
                checked_at=now,
                **self._times(now, bool(sealed)),
            ).execute()

        self._database.write(work)
        return login_id

    def claim(self, maximum: int, besides: Collection[str] = ()) -> list[DueLogin]:
        """Return at most `maximum` sign-ins that are due, the longest waiting first; no other worker gets them soon.
        Those with the providers of `besides` are left out."""

        def work() -> list[SsoLogin]:
            now = self._database.now_us()
            due = (SsoLogin.check_at > NO_CHECK) & (SsoLogin.check_at <= now)
            if besides:
                due &= SsoLogin.provider.not_in(list(besides))
            rows = list(SsoLogin.select().where(due).order_by(SsoLogin.check_at).limit(maximum))
            chosen = [row.id for row in rows]
            SsoLogin.update(check_at=now + LEASE_S * SECOND_US).where(SsoLogin.id.in_(chosen)).execute()
            return rows

        return [
            DueLogin(
                row.id,
                row.user_id,
                row.organization,
                row.provider,
                row.issuer,
                row.subject,
                self._vault.open(row.refresh_token),
                row.failures,
            )
            for row in self._database.write(work)
        ]

    def give_back(self, login: DueLogin) -> None:
        """Let a claimed sign-in be due again, since it was not checked."""

        def work() -> None:
            SsoLogin.update(check_at=self._database.now_us()).where(SsoLogin.id == login.id).execute()

        self._database.write(work)

    def confirm(self, login_id: str, refresh_token: str) -> None:
        """Record that the provider still knows the person; `refresh_token` is the next one."""
        sealed = self._vault.seal(refresh_token)

        def work() -> None:
            now = self._database.now_us()
            values = {"refresh_token": sealed, "failures": 0, "checked_at": now, **self._times(now, True)}
            SsoLogin.update(**values).where(SsoLogin.id == login_id).execute()

        self._database.write(work)

    def postpone(self, login: DueLogin) -> None:
        """Record that the provider could not be reached; the next check follows after a growing delay."""
        delay_s = min(FIRST_RETRY_S << min(login.failures, MAX_DOUBLINGS), self._settings.recheck_s)

        def work() -> None:
            at = self._database.now_us() + round(delay_s * SECOND_US)
            SsoLogin.update(check_at=at, failures=login.failures + 1).where(SsoLogin.id == login.id).execute()

        self._database.write(work)

    def id_token_of(self, login_id: str) -> str:
        """Return the ID token of a sign-in, "" if it is unknown or over."""
        row = self._database.read(partial(SsoLogin.get_or_none, SsoLogin.id == login_id))
        return self._vault.open(row.id_token_hint) if row is not None else ""

    def end_unused(self, login_id: str) -> None:
        """Delete a sign-in without sessions."""

        def work() -> None:
            if not Session.select().where(Session.sso_login == login_id).exists():
                delete_logins(SsoLogin.id == login_id)

        self._database.write(work)

    def end(self, login_id: str, reason: str, *, actor: str) -> int:
        """End a sign-in with its sessions; how many sessions ended."""
        return self._database.write(partial(self._end, SsoLogin.id == login_id, reason, actor))

    def end_matching(self, provider_id: str, issuer: str, subject: str, sid: str, reason: str, *, actor: str) -> int:
        """End the sessions and devices of the sign-ins with this subject and session id; "" matches any. How many
        sessions ended. Checks of the person continue where they are watched (see `forget`)."""
        chosen = (SsoLogin.provider == provider_id) & (SsoLogin.issuer == issuer)
        if subject:
            chosen &= SsoLogin.subject == subject
        if sid:
            chosen &= SsoLogin.sid == sid
        return self._database.write(partial(self._end, chosen, reason, actor, is_kept=True))

    def forget(self, watched: Collection[str] = ()) -> int:
        """Delete sign-ins that are over or have neither a session nor a device waiting for one.

        The last one of each person at the `watched` providers stays, so that the checks of the person continue.
        """

        def work() -> int:
            now = self._database.now_us()
            sessions = Session.select(Session.sso_login).where(Session.sso_login.is_null(False))
            devices = DeviceCode.select(DeviceCode.sso_login).where(DeviceCode.sso_login.is_null(False))
            unused = SsoLogin.id.not_in(sessions) & SsoLogin.id.not_in(devices)
            settled = SsoLogin.created_at < now - 3600 * SECOND_US
            last = (
                SsoLogin.select(peewee.fn.MAX(SsoLogin.id))
                .where(SsoLogin.provider.in_(list(watched)), SsoLogin.check_at > NO_CHECK)
                .group_by(SsoLogin.provider, SsoLogin.user_id)
            )
            is_over = (SsoLogin.valid_until <= now) | (unused & settled)
            return delete_logins(is_over & SsoLogin.id.not_in(last))[0]

        return self._database.write(work)

    def _end(self, chosen: Any, reason: str, actor: str, is_kept: bool = False) -> int:
        rows = list(SsoLogin.select().where(chosen))
        login_ids = [row.id for row in rows]
        count = end_sessions(login_ids)
        if not is_kept:
            SsoLogin.delete().where(SsoLogin.id.in_(login_ids)).execute()
        now = self._database.now_us()
        for row in rows:
            detail = {"reason": reason, "provider": row.provider}
            audit.append(
                "sso.sign_out", row.user_id, actor=actor, at_us=now, organization_id=row.organization, detail=detail
            )
        return count

    def _times(self, now: int, refreshable: bool) -> dict[str, int]:
        settings = self._settings
        if not refreshable:
            return {"check_at": NO_CHECK, "valid_until": now + round(settings.session_s * SECOND_US)}
        next_check = now + round(settings.recheck_s * SECOND_US)
        return {"check_at": next_check, "valid_until": next_check + round(settings.unchecked_s * SECOND_US)}


def delete_logins(chosen: Any) -> tuple[int, int]:
    """Delete the sign-ins that match, with their sessions and approved devices; the numbers of sign-ins and of
    sessions. Within a write."""
    login_ids: Sequence[str] = [row.id for row in SsoLogin.select(SsoLogin.id).where(chosen)]
    sessions = end_sessions(login_ids)
    SsoLogin.delete().where(SsoLogin.id.in_(login_ids)).execute()
    return len(login_ids), sessions


def end_sessions(login_ids: Sequence[str]) -> int:
    """End the sessions and approved devices of sign-ins; how many sessions ended. Within a write."""
    DeviceCode.delete().where(DeviceCode.sso_login.in_(login_ids)).execute()
    count: int = Session.delete().where(Session.sso_login.in_(login_ids)).execute()
    return count
