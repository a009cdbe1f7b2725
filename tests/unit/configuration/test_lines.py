"""Mistakes in a TOML file are reported with their line."""

import pytest

from gateway.configuration.file import TomlLines, TomlPlace

TEXT = """name = "North"
# [server]
[server]
port = 1
"quoted" = 2

[ providers.openai ]
api_key = "env:ONE"
[[providers.openai.mappings]]
model = "one"
[[providers.openai.mappings]]
model = "two"
[providers."house.one"]
address = "x"
"""


@pytest.mark.parametrize(
    ("table", "key", "nth", "number"),
    [
        ("", "name", 0, 1),
        ("server", "port", 0, 4),
        ("server", "quoted", 0, 5),
        ("server", "", 0, 3),
        ("server", "absent", 0, 3),
        ("providers.openai", "api_key", 0, 8),
        ("providers.openai.mappings", "model", 0, 10),
        ("providers.openai.mappings", "model", 1, 12),
        ("providers.house.one", "address", 0, 14),
        ("absent", "port", 0, 0),
        ("", "absent", 0, 0),
    ],
)
def test_the_line_of_a_key_is_found(table: str, key: str, nth: int, number: int) -> None:
    assert TomlLines(TEXT).find(table, key, nth) == number


def test_a_place_names_file_line_and_entry() -> None:
    place = TomlPlace("own.toml", "mapping two", TomlLines(TEXT), "providers.openai.mappings", 1)
    assert (str(place), place.at("model")) == ("own.toml:11: mapping two", "own.toml:12: mapping two")
    assert str(TomlPlace("own.toml")) == "own.toml"
