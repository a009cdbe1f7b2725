"""E-mail about accounts: invitations, and links by which a lost password is replaced.

Links lead to `server.public_url`, never to the host that a request names: else a request could have a link sent that
leads to another site. They are queued, so that no request waits for a mail server.
"""

import hmac
from functools import partial
from typing import NamedTuple

from gateway.accounts import audit, members
from gateway.accounts.invitations import InvitationInfo
from gateway.accounts.mail_queue import MailQueue
from gateway.accounts.passwords import Passwords
from gateway.callers.models import User
from gateway.callers.throttle import Throttle, ThrottleGate
from gateway.callers.tokens import hash_token
from gateway.clock import SECOND_US, to_datetime
from gateway.control.version import Control
from gateway.errors import GatewayError, Gone, NotFound, RateLimited
from gateway.runtime.threads import spawn
from gateway.store.database import Database
from gateway.transport.mail import Mail

LINK_LIFETIME_S = 3600
HOUR_S = 3600
DAY_S = 86_400
RESETS_EACH, RESETS_PLACE, TRIES_PLACE = 3, 20, 30  # an hour: of an address, from a place; links opened from a place
INVITED_EACH, INVITED_BY = 3, 200  # a day: mails to an address, from an organization
MAX_NAME_LENGTH = 80
UNKNOWN = "This link is not valid. Copy the whole link from the e-mail, or request a new one."
LINK_EXPIRED = "This link has expired or was used. It is valid for an hour and works once. Request a new one."
NOT_CONFIRMED = (
    "Another changed the address of this account, and its person has not confirmed it. Ask the operator for a new "
    "password."
)
OFF = "This installation does not send e-mail. Ask its operator to set a new password for you."

RESET_TEXT = """A new password was requested for {email} at {base}.

Open this link within an hour to choose one. It works once:

{link}

If you did not request this, ignore this e-mail. Your password does not change.
"""
INVITE_TEXT = """{inviter} invites you to the organization "{organization}" at {base}, as {role}.

Open this link until {until} to accept:

{link}

If you did not expect this invitation, ignore this e-mail.
"""


class ResetLink(NamedTuple):
    """The user and e-mail address of a valid link."""

    user_id: str
    email: str


class AccountMails:
    """Sends e-mail about accounts. Without a `public_url` there are no links, so nothing is sent."""

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
        """Whether e-mail and the public URL are configured."""
        return self._mail.enabled and bool(self._base)

    def send_invitation(self, info: InvitationInfo, path: str) -> bool:
        """Send the link of an invitation. Return False if e-mail is disabled or rate-limited."""
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
        """Send a link for a new password if an account has the address.

        The result and its timing do not reveal whether there is an account. `path` is the path before the token.
        Raises NotFound (e-mail is disabled) or RateLimited.
        """
        if not self.enabled:
            raise NotFound(OFF)
        address = email.strip().lower()[:255].replace("\0", "")
        self._throttle.take(
            ThrottleGate("password reset, address", address, RESETS_EACH, HOUR_S),
            ThrottleGate("password reset, place", peer, RESETS_PLACE, HOUR_S),
        )
        spawn(self._send_reset, address, peer, path)

    def find_reset(self, token: str, peer: str) -> ResetLink:
        """Return the account of a link. Raises NotFound, Gone (used or expired) or RateLimited."""
        self._throttle.take(ThrottleGate("password reset, links", peer, TRIES_PLACE, HOUR_S))
        user_id, _, rest = token[:512].replace("\0", "").partition(".")
        ends, _, mac = rest.partition(".")
        user = self._database.read(partial(User.get_or_none, User.id == user_id, User.status == "active"))
        if user is None or not ends.isascii() or not ends.isdigit():
            raise NotFound(UNKNOWN)
        # The signature includes the address and the password's hash: the link ends when either changes.
        signed = hmac.compare_digest(self._mac(user, ends).encode(), mac.encode())
        if not signed or int(ends) * SECOND_US <= self._database.now_us():
            raise Gone(LINK_EXPIRED)
        if user.email_set_by:
            raise Gone(NOT_CONFIRMED)
        return ResetLink(user.id, user.email)

    def reset(self, token: str, password: str, peer: str) -> ResetLink:
        """Replace the password and end all sessions. Raises as `find_reset`, and InvalidRequest (password)."""
        link = self.find_reset(token, peer)
        members.set_password(self._database, self._control, self._passwords, link.user_id, password, actor=link.user_id)
        return link

    def _send_reset(self, address: str, peer: str, path: str) -> None:
        """Never raises, since no caller waits for the result."""
        try:
            user = self._database.read(partial(User.get_or_none, User.email == address, User.status == "active"))
            if user is None:
                return
            now = self._database.now_us()
            detail = {"from": peer, **({"refused": "address not confirmed"} if user.email_set_by else {})}
            self._database.write(
                partial(audit.append, "user.ask_password", user.id, actor="anonymous", at_us=now, detail=detail)
            )
            if user.email_set_by:
                return
            ends = str(now // SECOND_US + LINK_LIFETIME_S)
            link = f"{self._base}{path}{user.id}.{ends}.{self._mac(user, ends)}"
            text = RESET_TEXT.format(email=user.email, base=self._base, link=link)
            self._mail.put(Mail(user.email, "A new password", text))
        except GatewayError:
            return

    def _mac(self, user: User, ends: str) -> str:
        return hash_token(f"reset\n{user.id}\n{ends}\n{user.email}\n{user.password_hash}", self._hash_key)


def _line(text: str) -> str:
    return " ".join(text.split())[:MAX_NAME_LENGTH]
