"""E-mail about accounts: invitations, and links by which a lost password is replaced.

Links lead to `server.public_url`, never to the host that a request names: else a request could have a link sent that
leads to another site. They are queued, so that no request waits for a mail server.
"""

import hmac
from typing import NamedTuple

from gateway.accounts import audit, members
from gateway.accounts.invitations import InvitationInfo
from gateway.accounts.mail_queue import MailQueue
from gateway.accounts.models import User
from gateway.accounts.passwords import Passwords
from gateway.accounts.throttle import Throttle, ThrottleGate
from gateway.accounts.tokens import hash_token
from gateway.clock import SECOND_US, to_datetime
from gateway.control.version import Control
from gateway.errors import GatewayError, Gone, NotFound, RateLimited
from gateway.runtime.threads import spawn
from gateway.store.database import Database
from gateway.transport.mail import Mail

LIFE_S = 3600
HOUR_S = 3600
DAY_S = 86_400
RESETS_EACH, RESETS_PLACE, TRIES_PLACE = 3, 20, 30  # an hour: of an address, from a place; links opened from a place
INVITED_EACH, INVITED_BY = 3, 200  # a day: mails to an address, from an organization
LONGEST_NAME = 80
UNKNOWN = "This link leads nowhere. Copy the whole link from the e-mail, or ask for another one."
OVER = "This link is over: it was good for an hour, and for one password. Ask for another one."
OFF = "This installation sends no e-mail; its operator can set another password for you."

RESET_TEXT = """A new password was requested for {email} at {base}.

Open this link within an hour to choose one. It works once:

{link}

If it was not you, do nothing: your password stays as it is.
"""
INVITE_TEXT = """{inviter} invites you to the organization "{organization}" at {base}, as {role}.

Open this link until {until} to accept:

{link}

If you do not know who this is, do nothing.
"""


class ResetLink(NamedTuple):
    """The user of a valid link, and their address."""

    user_id: str
    email: str


class Letters:
    """`public_url` "" = links cannot be made, so nothing is sent."""

    def __init__(
        self,
        database: Database,
        control: Control,
        passwords: Passwords,
        throttle: Throttle,
        mail: MailQueue,
        hash_key: bytes,
        public_url: str,
    ) -> None:
        self._database = database
        self._control = control
        self._passwords = passwords
        self._throttle = throttle
        self._mail = mail
        self._hash_key = hash_key
        self._base = public_url.rstrip("/")

    @property
    def enabled(self) -> bool:
        """Whether e-mail is set up, and links have an address."""
        return self._mail.enabled and bool(self._base)

    def send_invitation(self, info: InvitationInfo, path: str) -> bool:
        """Send the link of an invitation: `path` at our address. False where e-mail is off or enough was sent."""
        if not self.enabled:
            return False
        gates = (
            ThrottleGate("invitation mail, address", info.email, INVITED_EACH, DAY_S),
            ThrottleGate("invitation mail, organization", info.organization_id, INVITED_BY, DAY_S),
        )
        try:
            self._throttle.take(*gates)
        except RateLimited:
            return False
        text = INVITE_TEXT.format(
            inviter=_line(info.inviter) or "The operator",
            organization=_line(info.organization_name),
            base=self._base,
            role=info.role,
            until=to_datetime(info.expires_at_us).strftime("%d %B %Y"),
            link=self._base + path,
        )
        self._mail.put(Mail(info.email, f"Invitation to {_line(info.organization_name)}", text))
        return True

    def ask_reset(self, email: str, peer: str, path: str) -> None:
        """Send a link for a new password, if the address is of an account. The answer, and its time, are the same
        whether it is. `path` stands before the token. NotFound (e-mail is off), RateLimited."""
        if not self.enabled:
            raise NotFound(OFF)
        address = email.strip().lower()[:255].replace("\0", "")
        self._throttle.take(
            ThrottleGate("password reset, address", address, RESETS_EACH, HOUR_S),
            ThrottleGate("password reset, place", peer, RESETS_PLACE, HOUR_S),
        )
        spawn(self._send_reset, address, peer, path)

    def find_reset(self, token: str, peer: str) -> ResetLink:
        """The account of a link. NotFound, Gone (used or over), RateLimited."""
        self._throttle.take(ThrottleGate("password reset, links", peer, TRIES_PLACE, HOUR_S))
        user_id, _, rest = token[:512].replace("\0", "").partition(".")
        ends, _, given = rest.partition(".")
        user = self._database.read(lambda: User.get_or_none(User.id == user_id, User.status == "active"))
        if user is None or not ends.isascii() or not ends.isdigit():
            raise NotFound(UNKNOWN)
        # The password's hash is part of what is signed: the link ends with the password that it replaces.
        signed = hmac.compare_digest(self._mac(user, ends).encode(), given.encode())
        if not signed or int(ends) * SECOND_US <= self._database.now_us():
            raise Gone(OVER)
        return ResetLink(user.id, user.email)

    def reset(self, token: str, password: str, peer: str) -> ResetLink:
        """Replace the password; every session ends. As `find_reset`, and InvalidRequest (12 to 1024 characters)."""
        link = self.find_reset(token, peer)
        members.set_password(self._database, self._control, self._passwords, link.user_id, password, actor=link.user_id)
        return link

    def _send_reset(self, address: str, peer: str, path: str) -> None:
        """Never raises, since no caller waits for the result."""
        try:
            user = self._database.read(lambda: User.get_or_none(User.email == address, User.status == "active"))
            if user is None:
                return
            now = self._database.now_us()
            detail = {"from": peer}
            self._database.write(
                lambda: audit.append("user.ask_password", user.id, actor="anonymous", at_us=now, detail=detail)
            )
            ends = str(now // SECOND_US + LIFE_S)
            link = f"{self._base}{path}{user.id}.{ends}.{self._mac(user, ends)}"
            text = RESET_TEXT.format(email=user.email, base=self._base, link=link)
            self._mail.put(Mail(user.email, "A new password", text))
        except GatewayError:
            return

    def _mac(self, user: User, ends: str) -> str:
        return hash_token(f"reset\n{user.id}\n{ends}\n{user.password_hash}", self._hash_key)


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_NAME]
