"""Parsing of Range headers."""

import pytest

from gateway.runtime.byte_ranges import NoSuchRange, read_range


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bytes=0-9", (0, 10)),
        ("bytes=90-", (90, 100)),
        ("bytes=90-500", (90, 100)),
        ("bytes=-10", (90, 100)),
        ("bytes=-500", (0, 100)),
        ("", None),
        ("bytes=0-1,5-6", None),
        ("lines=0-1", None),
        ("bytes=9-3", None),
        ("nonsense", None),
    ],
)
def test_a_range_is_read_as_servers_do(text: str, part: tuple[int, int] | None) -> None:
    assert read_range(text, 100) == part


def test_a_range_after_the_end_is_unsatisfiable() -> None:
    with pytest.raises(NoSuchRange):
        read_range("bytes=100-", 100)
