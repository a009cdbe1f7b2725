"""Costs of a password's hash, and the order in which passwords are checked; the rest of the suite hashes cheaply."""

import importlib.util
from collections.abc import Iterator
from types import ModuleType

import gevent
import pytest

from gateway.accounts import passwords
from gateway.accounts.passwords import MAX_WAITING, WAITING_EACH, Passwords, PasswordsBusy
from gateway.errors import InvalidRequest

COST = "$argon2id$v=19$m=65536,t=3,p=4$"


@pytest.fixture
def real() -> Iterator[ModuleType]:
    """The module as the product has it."""
    spec = importlib.util.spec_from_file_location("real_passwords", passwords.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module


@pytest.mark.slow
def test_checking_a_password_takes_as_long_for_unknown_accounts(real: ModuleType) -> None:
    checked = real.Passwords()
    stored = checked.hash("correct horse battery")
    assert stored.startswith(COST) and real.UNKNOWN_USER_HASH.startswith(COST)
    assert checked.check("correct horse battery", stored)
    assert not checked.check("incorrect horse", stored)
    checked.close()


def test_sign_in_without_a_password_is_refused(password_threads: Passwords) -> None:
    assert not password_threads.check("correct horse battery", "")


@pytest.mark.parametrize("password", ["elevenchars", "x" * 1025])
def test_a_password_too_short_or_too_long_is_refused(password_threads: Passwords, password: str) -> None:
    with pytest.raises(InvalidRequest):
        password_threads.hash(password)


def test_passwords_of_known_devices_are_checked_before_those_of_strangers(password_threads: Passwords) -> None:
    checked: list[str] = []

    def sign_in(owner: str, known: bool) -> None:
        password_threads.check("correct horse battery", "", owner, known=known)
        checked.append(owner)

    strangers = [gevent.spawn(sign_in, f"192.0.2.{number}", False) for number in range(MAX_WAITING)]
    gevent.sleep(0)
    known = [gevent.spawn(sign_in, f"device {number}", True) for number in range(3)]
    gevent.joinall([*strangers, *known], timeout=20, raise_error=True)
    assert checked[1:4] == ["device 0", "device 1", "device 2"], "only the hash that had begun is ahead"


def test_a_flood_of_passwords_is_refused_beyond_a_short_queue_but_not_for_known_devices(
    password_threads: Passwords,
) -> None:
    def sign_in(number: int) -> bool:
        try:
            password_threads.check("correct horse battery", "", f"192.0.2.{number}", known=False)
        except PasswordsBusy as busy:
            assert busy.status == 503 and busy.retry_after
            return False
        return True

    flood = [gevent.spawn(sign_in, number) for number in range(180)]
    gevent.sleep(0)
    assert password_threads.waiting == MAX_WAITING
    assert not password_threads.check("correct horse battery", "", "device", known=True), "checked, and wrong"
    gevent.joinall(flood, timeout=20, raise_error=True)
    assert sum(one.value for one in flood) == MAX_WAITING + 1


def test_one_address_does_not_fill_the_queue_of_passwords(password_threads: Passwords) -> None:
    flood = [
        gevent.spawn(password_threads.check, "correct horse battery", "", "192.0.2.1", known=False)
        for _ in range(WAITING_EACH + 1)
    ]
    gevent.sleep(0)
    with pytest.raises(PasswordsBusy):
        password_threads.check("correct horse battery", "", "192.0.2.1", known=False)
    assert not password_threads.check("correct horse battery", "", "192.0.2.2", known=False)
    gevent.joinall(flood, timeout=20, raise_error=True)
