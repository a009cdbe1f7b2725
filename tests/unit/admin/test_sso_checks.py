"""Checks of sign-ins at providers: providers that hang delay no checks at the providers of others."""

from collections.abc import Collection
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from gevent.event import Event

from gateway.accounts.sso_logins import DueLogin
from gateway.admin import sso_checks
from gateway.admin.sso_checks import AT_ONCE_EACH, SsoChecks

HANGING = 40
OWNERS = {"hanging-1": "mallory", "hanging-2": "mallory", "good": "alice"}


class Logins:
    """Sign-ins that are due, the longest waiting first."""

    def __init__(self, providers: list[str]) -> None:
        self.due = [DueLogin(f"sso_{n}", "u", "o", name, "i", "s", "r", 0) for n, name in enumerate(providers)]
        self.confirmed: list[str] = []

    def claim(self, maximum: int, besides: Collection[str] = ()) -> list[DueLogin]:
        claimed = [login for login in self.due if login.provider_id not in besides][:maximum]
        self.due = [login for login in self.due if login not in claimed]
        return claimed

    def give_back(self, login: DueLogin) -> None:
        self.due.insert(0, login)

    def confirm(self, login_id: str, refresh_token: str) -> None:
        self.confirmed.append(login_id)


def test_hanging_providers_of_one_owner_do_not_delay_the_checks_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen checks were made at a time, and the next ones after the last of them."""
    answered = Event()
    asked: list[str] = []

    def refresh(provider: Any, *given: Any) -> Any:
        asked.append(provider.id)
        if provider.id != "good":
            answered.wait(60)
        return SimpleNamespace(refresh_token="next", groups=[], attributes={})

    service: Any = SimpleNamespace(
        providers=SimpleNamespace(find=lambda ident: SimpleNamespace(id=ident, scopes=())),
        client=SimpleNamespace(refresh=refresh),
        accounts=SimpleNamespace(confirm=lambda *given: None),
    )
    monkeypatch.setattr(sso_checks, "WAIT_S", 0.001)
    ticks = count()
    logins: Any = Logins(["hanging-1", "hanging-2"] * (HANGING // 2) + ["good"] * 30)
    checks = SsoChecks(service, logins, SimpleNamespace(), lambda provider: OWNERS[provider.id], lambda: next(ticks))
    checks.run(lambda: True)
    assert len(logins.confirmed) == 30
    assert len([name for name in asked if name != "good"]) == AT_ONCE_EACH
    answered.set()
    checks.run(lambda: True)
    assert len(logins.confirmed) == 30 + HANGING
    assert not logins.due
