"""Saved views that are sent each week: a round of the leading worker queues what is due, and the queues of e-mail and
of alerts deliver it."""

import hmac
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.accounts import view_subscriptions
from gateway.accounts.alert_hooks import AlertHooks
from gateway.accounts.mail_queue import MailQueue
from gateway.accounts.view_subscriptions import ViewSubscription
from gateway.callers.tokens import hash_token
from gateway.clock import DAY_US, HOUR_US, MINUTE_US, Clock
from gateway.errors import GatewayError, InvalidRequest, NotFound, Unavailable
from gateway.runtime.fair_threads import QueueFull
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database
from gateway.telemetry.alert_delivery import Alerts
from gateway.telemetry.view_reports import ViewReport, event_of_view, mail_of_view

STOP_PATH = "/console/stop"
NO_MAIL = "This installation does not send e-mail: [mail] and server.public_url of the configuration are needed."
UNKNOWN_LINK = "This link is not valid, or what it stops has ended already."
MAX_TOKEN_LENGTH = 200
FAULT = "The view could not be composed; it is tried again within an hour."
BUSY = "The gateway is busy; the view is sent later."
RETRY_US = 10 * MINUTE_US
WEEK_US = 7 * DAY_US

log = logging.getLogger(__name__)


class ComposedView(NamedTuple):
    """A view with its figures, and the e-mail address of the person who subscribed."""

    report: ViewReport
    email: str


def _compose_nothing(subscription: ViewSubscription) -> ComposedView:
    raise Unavailable("The pages are not attached yet.")


class WeeklyViews:
    """`compose` is set by the surfaces, which know pages and their figures. It raises the errors of a page that the
    person who subscribed would see."""

    def __init__(
        self,
        database: Database,
        hooks: AlertHooks,
        alerts: Alerts,
        mail: MailQueue,
        clock: Clock,
        hash_keys: Sequence[bytes],
        public_url: str,
    ) -> None:
        self.compose: Callable[[ViewSubscription], ComposedView] = _compose_nothing
        self._database = database
        self._hooks = hooks
        self._alerts = alerts
        self._mail = mail
        self._clock = clock
        self._hash_keys = hash_keys
        self._base = public_url.rstrip("/")

    @property
    def mails(self) -> bool:
        """Return whether e-mail can be sent, with links."""
        return self._mail.enabled and bool(self._base)

    @property
    def base_url(self) -> str:
        """Return the public address of the installation; "" without one."""
        return self._base

    def run(self, should_continue: ShouldContinue = always) -> None:
        """Queue the views that are due. Unavailable when the store is down."""
        for subscription in view_subscriptions.list_due(self._database, self._database.now_us()):
            if not should_continue():
                return
            self._send(subscription)

    def _send(self, subscription: ViewSubscription) -> None:
        now = self._database.now_us()
        try:
            self._queue(subscription, now)
        except GatewayError as error:
            at_us = now + RETRY_US if error.blame != "caller" else subscription.schedule.next_after(now)
            self._leave_out(subscription, error.message, at_us)
        except QueueFull:
            self._leave_out(subscription, BUSY, now + RETRY_US)
        except Exception:  # a fault with one view must not keep the others from being sent
            log.exception("the view of the subscription %s could not be composed", subscription.id)
            self._leave_out(subscription, FAULT, now + HOUR_US)

    def _leave_out(self, subscription: ViewSubscription, problem: str, at_us: int) -> None:
        """Try a view again at `at_us`, so that others come first, unless it has been due for a day: then next week."""
        now = self._database.now_us()
        due_us = subscription.schedule.next_after(now - WEEK_US)
        if now - due_us > DAY_US:
            at_us = subscription.schedule.next_after(now)
        view_subscriptions.leave_out(self._database, subscription, problem, at_us)

    def _queue(self, subscription: ViewSubscription, now: int) -> None:
        if not subscription.hook_id:
            if not self.mails:
                raise InvalidRequest(NO_MAIL)
            composed = self.compose(subscription)
            mail = mail_of_view(subscription, composed.report, composed.email, self.stop_link(subscription))
            view_subscriptions.claim(self._database, subscription, lambda: self._mail.put(mail))
            return
        hook = self._hooks.find(subscription.organization_id, subscription.hook_id)
        event = event_of_view(subscription, self.compose(subscription).report, self._clock.now_us())
        view_subscriptions.claim(self._database, subscription, lambda: self._alerts.queue(hook, event))

    def stop_link(self, subscription: ViewSubscription) -> str:
        """Return the address of the page that ends a subscription without a sign-in."""
        return f"{self._base}{STOP_PATH}/{subscription.id}.{self._sign(subscription.id, self._hash_keys[0])}"

    def find_stopped(self, token: str) -> ViewSubscription:
        """Return the subscription that the token of such an address ends. Raises NotFound."""
        if not self.is_signed(token):
            raise NotFound(UNKNOWN_LINK)
        try:
            return view_subscriptions.find(self._database, token.partition(".")[0])
        except NotFound:
            raise NotFound(UNKNOWN_LINK) from None

    def is_signed(self, token: str) -> bool:
        """Return whether this installation made a token, be its subscription over or not."""
        ident, _, given = token[:MAX_TOKEN_LENGTH].partition(".")
        signed = [hmac.compare_digest(self._sign(ident, key).encode(), given.encode()) for key in self._hash_keys]
        return any(signed)

    def _sign(self, ident: str, key: bytes) -> str:
        return hash_token(f"stop\n{ident}", key)
