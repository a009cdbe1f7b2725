"""Checks of sign-ins: a request to the identity provider at intervals shows whether each person may still sign in.

A person whom the provider refuses loses the sessions of this sign-in, and the applications that they connected to the
organizations of the provider. Organizations that require the provider suspend the member instead, with all keys.
An unavailable provider is asked again; its sign-ins end when they are too old.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from msgspec import Struct

from gateway.accounts.identity_domains import IdentityDomains
from gateway.accounts.identity_providers import IdentityProvider
from gateway.accounts.sso_logins import DueLogin, SsoLogins
from gateway.admin.sso_accounts import actor_of
from gateway.admin.sso_sign_in import OFFLINE, SingleSignOnService
from gateway.errors import GatewayError, NotFound
from gateway.oauth.grants import Grants
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.loop_turns import ShouldContinue
from gateway.runtime.threads import Job

client = LazyImport("gateway.sso.openid_client")
log = logging.getLogger(__name__)

CONCURRENT_CHECKS = 16
# Checks at the same time with the providers of one owner. The providers of others are checked while these hang.
AT_ONCE_EACH = 4
MAX_ROUNDS = 200
TIMEOUT_S = 60.0
WAIT_S = 0.2
REFUSED_BY_PROVIDER = "refused by the identity provider"
REMOVED = "the identity provider was removed"


class SsoChecks:
    """The recurring checks of the installation; one worker runs them."""

    def __init__(
        self,
        service: SingleSignOnService,
        logins: SsoLogins,
        grants: Grants,
        owner_of: Callable[[IdentityProvider], str],
        now: Callable[[], float],
    ) -> None:
        self._service = service
        self._logins = logins
        self._grants = grants
        self._owner_of = owner_of
        self._now = now
        # Owner → checks that have not ended, also those of earlier runs.
        self._running: dict[str, list[Job[None]]] = {}

    def run(self, should_continue: ShouldContinue) -> None:
        """Check all sign-ins that are due. Requests to providers run in parallel, a few for each owner of providers, so
        that slow ones delay no others. A check that takes longer than TIMEOUT_S continues after the run."""
        until = self._now() + TIMEOUT_S
        full: set[str] = set()  # providers of owners who have no free check
        for _ in range(MAX_ROUNDS):
            room = CONCURRENT_CHECKS - self._count()
            due = self._logins.claim(room, full) if room > 0 else []
            if not due:
                if not self._running or self._now() >= until:
                    return
                running = self._count()
                self._wait()
                if self._count() < running:
                    full.clear()
            for login in due:
                if not self._begin(login):
                    full.add(login.provider_id)
            if not should_continue():
                return

    def _count(self) -> int:
        """Return the number of checks in progress."""
        for owner in list(self._running):
            self._running[owner] = [job for job in self._running[owner] if not job.is_over]
            if not self._running[owner]:
                del self._running[owner]
        return sum(map(len, self._running.values()))

    def _begin(self, login: DueLogin) -> bool:
        """Start the check of a sign-in, unless too many of its owner are in progress; return whether it was started."""
        try:
            owner = self._owner_of(self._service.providers.find(login.provider_id))
        except NotFound:
            owner = login.provider_id
        running = self._running.setdefault(owner, [])
        if len(running) >= AT_ONCE_EACH:
            self._logins.give_back(login)
            return False
        running.append(Job(partial(self.check, login)))
        return True

    def _wait(self) -> None:
        """Wait until a check has ended, at most WAIT_S."""
        for jobs in list(self._running.values())[-1:]:
            with suppress(TimeoutError):
                jobs[-1].result(WAIT_S)

    def forget(self, should_continue: ShouldContinue) -> None:
        """Delete ended sign-ins, except those of people with keys that depend on their provider."""
        required = self._service.providers.list_required()
        self._logins.forget([provider.id for provider in required if OFFLINE in provider.scopes])

    def check(self, login: DueLogin) -> None:
        """Ask the provider about one sign-in, and end it if the person is refused."""
        try:
            provider = self._service.providers.find(login.provider_id)
        except NotFound:
            self._logins.end(login.id, REMOVED, actor="sso")
            return
        try:
            answer = self._service.client.refresh(provider, login.refresh_token, login.subject)
        except client.PersonRefused:
            self._end(login, provider)
            return
        except (GatewayError, client.SignInRefused) as error:
            log.info("the identity provider %s could not be asked: %s", provider.id, error)
            self._logins.postpone(login)
            return
        self._logins.confirm(login.id, answer.refresh_token)
        self._service.accounts.confirm(provider, login.user_id, answer.groups, answer.attributes)

    def _end(self, login: DueLogin, provider: IdentityProvider) -> None:
        actor = actor_of(provider)
        suspended: list[str] = []
        if OFFLINE in provider.scopes:
            suspended = self._service.accounts.suspensions.suspend(provider, login.user_id, actor=actor)
        self._logins.end(login.id, REFUSED_BY_PROVIDER, actor=actor)
        for grant_id in self._grants.ids_of_person(login.user_id, login.organization_id, besides=suspended):
            self._grants.end(grant_id, REFUSED_BY_PROVIDER, actor=actor)


# The services of single sign-on in a worker.


class SsoServices(Struct):
    """Sign-in with identity providers, the recurring checks of these sign-ins, and domains of providers."""

    service: SingleSignOnService
    checks: SsoChecks
    domains: IdentityDomains
