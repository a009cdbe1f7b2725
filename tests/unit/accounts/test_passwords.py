"""What a password's hash costs who guesses; the rest of the suite hashes cheaply."""

import importlib.util
from collections.abc import Iterator
from types import ModuleType

import pytest

from gateway.accounts import passwords
from gateway.errors import InvalidRequest
from gateway.threads import Threads

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
def test_a_password_and_nobodys_are_equally_slow_to_check(real: ModuleType, threads: Threads) -> None:
    stored = real.hash_password(threads, "correct horse battery")
    assert stored.startswith(COST) and real.NOBODY.startswith(COST)
    assert real.check_password(threads, "correct horse battery", stored)
    assert not real.check_password(threads, "incorrect horse", stored)


def test_nobody_is_let_in_without_a_password(threads: Threads) -> None:
    assert not passwords.check_password(threads, "correct horse battery", "")


@pytest.mark.parametrize("password", ["elevenchars", "x" * 1025])
def test_a_password_too_short_or_too_long_is_refused(threads: Threads, password: str) -> None:
    with pytest.raises(InvalidRequest):
        passwords.hash_password(threads, password)
