"""Sessions: who is signed in, known by a secret token of which the store has only the keyed hash."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import peewee
from msgspec import Struct

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.members import end_sign_ins
from gateway.accounts.models import SsoLogin
from gateway.callers import tokens as tokens_module
from gateway.callers.models import Session, User
from gateway.clock import SECOND_US
from gateway.errors import Forbidden, NotFound, Unauthenticated
from gateway.store.database import WHOLE, Database, ListSlice
from gateway.store.installation_identity import Secrets

PREFIX = "llmgses_"
LIFETIME_S = 30 * 86_400
EXTENSION_INTERVAL_S = 86_400  # a session in use gets its full life back, at most once in this time
AGENT_LENGTH = 120
EXPIRED = "The session has expired. Sign in again."


class SessionInfo(Struct, frozen=True):
    """A live session and its user. `refreshed`: this look-up extended it, so a cookie should be sent anew.
    `used_at_us` is accurate to the day; `agent` is the name that the program gave at the sign-in. `sso_login` and
    `provider_id` are set after a sign-in with an identity provider; `organization_id` is the organization of that
    provider, the only one that the session reaches ("": all, or a sign-in by password)."""

    id: str
    user_id: str
    email: str
    name: str
    created_at_us: int
    expires_at_us: int
    refreshed: bool = False
    used_at_us: int = 0
    agent: str = ""
    sso_login: str = ""
    provider_id: str = ""
    organization_id: str = ""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session and its token, which exists nowhere else."""

    info: SessionInfo
    token: str = field(repr=False)


MAX_SESSIONS = 100  # of one user


class Sessions:
    """All sessions, in the store: a session that was closed is refused by the next request on any worker."""

    def __init__(self, database: Database, secrets: Secrets) -> None:
        self._database = database
        self._hash_keys = secrets.hash_keys

    def open(self, user_id: str, agent: str = "", sso_login: str = "") -> NewSession:
        """Sign a user in; `agent` is what the program calls itself, `sso_login` the sign-in with an identity provider
        on which the session depends."""
        session_id = ids.new("ses")
        token = ids.token(PREFIX)
        now = self._database.now_us()
        insert = partial(self.insert, session_id, token, user_id, now, agent, sso_login)
        return NewSession(self._database.write(insert), token)

    def insert(
        self, session_id: str, token: str, user_id: str, now: int, agent: str = "", sso_login: str = ""
    ) -> SessionInfo:
        """The part of `open` that runs within a transaction. The oldest beyond MAX_SESSIONS of the user go."""
        Session.insert(
            id=session_id,
            user=user_id,
            token_hash=tokens_module.hash_token(token, self._hash_keys[0]),
            created_at=now,
            refreshed_at=now,
            expires_at=now + LIFETIME_S * SECOND_US,
            agent=agent[:AGENT_LENGTH].replace("\0", ""),
            sso_login=sso_login or None,
        ).execute()
        newest = (
            Session.select(Session.id)
            .where(Session.user == user_id)
            .order_by(Session.created_at.desc(), Session.id.desc())
            .limit(MAX_SESSIONS)
        )
        Session.delete().where(Session.user == user_id, Session.id.not_in(newest)).execute()
        audit.append("session.create", session_id, actor=user_id, at_us=now)
        return _info(_select().where(Session.id == session_id).first())

    def find(self, token: str) -> SessionInfo:
        """The session of a token, extended when it was not for a day.

        Unauthenticated (code session_invalid): none, unknown or over. Forbidden: the account was deactivated.
        """
        if not tokens_module.well_formed(token):
            raise Unauthenticated(EXPIRED, code="session_invalid")
        now = self._database.now_us()
        hashes = tokens_module.candidates(token, self._hash_keys)
        row = self._database.read(lambda: _select().where(Session.token_hash.in_(hashes)).first())
        if row is None or row.expires_at <= now or not _is_vouched(row, now):
            raise Unauthenticated(EXPIRED, code="session_invalid")
        if row.status != "active":
            raise Forbidden("This account was deactivated.", code="account_deactivated")
        if row.refreshed_at + EXTENSION_INTERVAL_S * SECOND_US > now:
            return _info(row)
        return self._refresh(row, now)

    def close(self, session_id: str, *, actor: str) -> None:
        """Sign out; nothing happens when the session is over already."""

        def work() -> None:
            if Session.delete().where(Session.id == session_id).execute():
                audit.append("session.delete", session_id, actor=actor, at_us=self._database.now_us())

        self._database.write(work)

    def close_others(self, user_id: str, current: str = "") -> int:
        """Sign a user out everywhere but in session `current`, also at devices that were approved and are not signed in
        yet; how many sessions ended."""

        def work() -> int:
            count = end_sign_ins(user_id, current)
            if count:
                now = self._database.now_us()
                audit.append("session.delete_others", user_id, actor=user_id, at_us=now, detail={"sessions": count})
            return count

        return self._database.write(work)

    def list_sessions(self, user_id: str, part: ListSlice = WHOLE) -> list[SessionInfo]:
        """The live sessions of a user, newest first."""
        now = self._database.now_us()
        query = _select().where(Session.user == user_id, Session.expires_at > now).order_by(Session.id.desc())
        return self._database.read(lambda: [_info(row) for row in part.narrow(query, Session.id, newest_first=True)])

    def close_one(self, user_id: str, session_id: str) -> None:
        """End one session of a user. NotFound."""

        def work() -> None:
            if not Session.delete().where(Session.id == session_id, Session.user == user_id).execute():
                raise NotFound("You have no session with this id.")
            audit.append("session.delete", session_id, actor=user_id, at_us=self._database.now_us())

        self._database.write(work)

    def _refresh(self, row: Session, now: int) -> SessionInfo:
        end = now + LIFETIME_S * SECOND_US
        self._database.write(
            lambda: Session.update(refreshed_at=now, expires_at=end).where(Session.id == row.id).execute()
        )
        row.expires_at = end
        return _info(row, refreshed=True)


def _select() -> "peewee.ModelSelect[Any]":
    login = Session.sso_login == SsoLogin.id
    return (
        Session.select(
            Session, User.email, User.name, User.status, SsoLogin.valid_until, SsoLogin.provider, SsoLogin.organization
        )
        .join(User)
        .switch(Session)
        .join(SsoLogin, peewee.JOIN.LEFT_OUTER, on=login)
        .objects()
    )


def _is_vouched(row: Any, now: int) -> bool:
    """Return whether the session is independent of an identity provider, or that sign-in still counts."""
    return row.sso_login is None or (row.valid_until is not None and row.valid_until > now)


def _info(row: Any, refreshed: bool = False) -> SessionInfo:
    return SessionInfo(
        row.id,
        row.user_id,
        row.email,
        row.name,
        row.created_at,
        row.expires_at,
        refreshed,
        row.refreshed_at,
        row.agent,
        row.sso_login or "",
        row.provider or "",
        row.organization or "",
    )
