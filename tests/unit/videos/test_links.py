"""Signed links to the content of videos: one log, one week, and the secrets of the installation or the operator's."""

import pytest
from support.clock import FakeClock

from gateway.errors import Unauthenticated
from gateway.videos.shown import Links

OLD, NEW = b"an older secret of the installation", b"a newer secret of the installation"
UNSIGNED = "eyJhbGciOiJub25lIn0.eyJsIjoibG9nIiwiZXhwIjo5OTk5OTk5OTk5OX0."


def refused(links: Links, token: str, log_id: str = "log") -> bool:
    try:
        links.check(token, log_id)
    except Unauthenticated as error:
        return error.code == "invalid_video_token"
    return False


def test_a_link_opens_its_log_for_a_week(clock: FakeClock) -> None:
    links = Links("", (NEW,), clock)
    token = links.sign("log")
    clock.advance(7 * 86_400 - 2)
    links.check(token, "log")
    clock.advance(3)
    assert refused(links, token)


def test_links_of_an_older_secret_stay_good_while_it_is_listed(clock: FakeClock) -> None:
    token = Links("", (OLD,), clock).sign("log")
    Links("", (NEW, OLD), clock).check(token, "log")
    assert refused(Links("", (NEW,), clock), token)


def test_the_operators_secret_takes_the_place_of_the_installations(clock: FakeClock) -> None:
    token = Links("a secret of the operator's own, long enough", (NEW,), clock).sign("log")
    assert refused(Links("", (NEW,), clock), token)
    Links("a secret of the operator's own, long enough", (OLD,), clock).check(token, "log")


# Headers {"alg": "HS256", "crit": 1} and [].
ODD = ("eyJhbGciOiJIUzI1NiIsImNyaXQiOjF9.e30.AAAA", "W10.e30.AAAA")


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "é.é.é", UNSIGNED, "x" * 5000, *ODD])
def test_an_invalid_token_opens_nothing(clock: FakeClock, token: str) -> None:
    assert refused(Links("", (NEW,), clock), token)


def test_a_token_is_of_one_log(clock: FakeClock) -> None:
    links = Links("", (NEW,), clock)
    assert refused(links, links.sign("log"), "another")
