"""Bounds of settings: no time can be so short that something runs all the time, or so long that a sum overflows."""

import math
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from gateway.configuration import settings
from gateway.configuration.file import SettingsError
from gateway.configuration.value_parsing import NumberRange

TIMES = ("_s", "_days")


def list_times(kind: type, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings that are times, with their types."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if is_dataclass(hint):
            yield from list_times(hint, f"{name}.")
        elif name.endswith(TIMES):
            yield f"{place}{name}", hint


def test_every_time_has_a_minimum_and_a_maximum() -> None:
    times = dict(list_times(settings.Settings))
    assert len(times) > 30
    unbounded = []
    for name, hint in times.items():
        checks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if not any(isinstance(check, NumberRange) and check.maximum < math.inf for check in checks):
            unbounded.append(name)
    assert unbounded == []


def load(tmp_path: Path, section: str, name: str, value: str) -> settings.Settings:
    file = tmp_path / "gateway.toml"
    file.write_text(f"[{section}]\n{name} = {value}\n")
    return settings.load({"GATEWAY_DATA_DIR": str(tmp_path / "data"), "GATEWAY_CONFIG": str(file)})


@pytest.mark.parametrize(
    ("section", "name", "value", "problem"),
    [
        ("server", "early_blank_s", "0.001", "must be 0, or at least 0.1 and at most 600"),
        ("otel", "metrics_every_s", "0", "must be at least 1"),
        ("timeouts", "plain_s", "0", "must be at least 0.01"),
        ("timeouts", "first_byte_s", "1e300", "at most 86400"),
        ("metering", "usage_days", "1000000000000", "at most 36500"),
        ("realtime", "idle_s", "0.0001", "must be 0, or at least 0.1"),
    ],
)
def test_a_time_outside_of_its_bounds_is_refused(
    tmp_path: Path, section: str, name: str, value: str, problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem):
        load(tmp_path, section, name, value)


def test_zero_means_none_where_it_is_allowed(tmp_path: Path) -> None:
    assert load(tmp_path, "server", "early_blank_s", "0").server.early_blank_s == 0
    assert load(tmp_path, "server", "early_blank_s", "25").server.early_blank_s == 25
    assert load(tmp_path, "realtime", "session_s", "0").realtime.session_s == 0
