"""Remedies in the log name existing commands and variables."""

import re
from pathlib import Path

from gateway.operator.command import main
from gateway.telemetry.request_line import MANAGE, REMEDIES

ROOT = Path(__file__).resolve().parents[3]


def test_every_remedy_is_for_a_code_that_is_documented() -> None:
    listed = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "errors.md").read_text()))
    assert set(REMEDIES) - listed == set()


def test_every_limit_on_spending_has_a_remedy() -> None:
    rows = re.findall(r"^\| 402 \| (.+?) \|", (ROOT / "docs" / "errors.md").read_text(), re.M)
    codes = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert len(codes) > 5 and codes - set(REMEDIES) == set()


def test_every_command_that_is_advised_exists() -> None:
    advised = {words for text in REMEDIES.values() for words in re.findall(rf"{MANAGE} ([a-z-]+) ([a-z-]+)", text)}
    assert len(advised) > 5
    for group, command in advised:
        found = main.get_command(None, group)  # type: ignore[arg-type]
        assert found is not None and command in found.commands, f"{group} {command}"  # type: ignore[attr-defined]
