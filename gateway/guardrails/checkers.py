"""Outside checkers of guardrails: their forms (config/checkers.toml), the settings of a rule, and their findings."""

import tomllib
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, get_args

from msgspec import Struct, convert, field

from gateway.configuration.settings import CONFIG
from gateway.errors import InvalidRequest, Unavailable
from gateway.guardrails.detectors import Detector, compile_pattern

FORM_TABLE = CONFIG / "checkers.toml"
OnFailure = Literal["block", "pass", "warn"]
ON_FAILURE: tuple[OnFailure, ...] = get_args(OnFailure)
Streaming = Literal["window", "end"]
STREAMING: tuple[Streaming, ...] = get_args(Streaming)
TIMEOUT_MS = 3_000
MIN_TIMEOUT_MS, MAX_TIMEOUT_MS = 100, 30_000
NO_ADDRESS = "none"
MAX_KIND = 40  # characters of the kind of a finding
# How kinds of values that checkers name begin placeholders: the first that is in the name.
LABELS_OF_KINDS = (
    ("mail", "EMAIL"),
    ("phone", "PHONE"),
    ("iban", "IBAN"),
    ("card", "CARD"),
    ("ip_address", "IP"),
    ("password", "PASSWORD"),
    ("key", "KEY"),
    ("person", "NAME"),
    ("name", "NAME"),
)


class FormSetting(Struct, frozen=True):
    """A setting of a form: `pattern` is that of its whole value."""

    pattern: str
    help: str
    default: str = ""
    required: bool = False


class CheckerForm(Struct, frozen=True):
    """A form of checkers; the fields are those of config/checkers.toml."""

    name: str
    title: str
    address: str
    credential: Literal["required", "optional", "none"]
    secret: str
    places: bool
    media: tuple[str, ...]
    longest: int
    together: int
    settings: dict[str, FormSetting] = field(default_factory=dict)

    def takes(self, media_type: str) -> bool:
        """Return whether the checker reads files of a type."""
        return media_type.lower().startswith(self.media) if self.media else False


class Checker(Struct, frozen=True):
    """The checker of a rule: its form, address, settings, and what happens when it fails. `sealed` is its encrypted
    credential. `streaming`: streamed answers are held back until they were checked (window), or only checked at their
    end, when nothing can be blocked any more."""

    form: str
    address: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    timeout_ms: int = TIMEOUT_MS
    on_failure: OnFailure = "block"
    streaming: Streaming = "window"
    sealed: str = ""

    @property
    def kind(self) -> CheckerForm:
        """The form."""
        return checker_forms()[self.form]

    def setting(self, name: str) -> str:
        """Return the value of a setting, or its default."""
        return dict(self.settings).get(name, "") or self.kind.settings[name].default


class FoundValue(Struct, frozen=True):
    """A finding of a checker: a kind, and its place in characters; without an end it is the whole text."""

    kind: str
    start: int = 0
    end: int = 0


@cache
def checker_forms() -> dict[str, CheckerForm]:
    """Return the forms by name."""
    rows = tomllib.loads(FORM_TABLE.read_text())["forms"]
    return {row["name"]: convert(row, CheckerForm) for row in rows}


def read_settings(form: CheckerForm, given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings of a rule from texts such as language=en. InvalidRequest for those that the form does not
    have, that have another form, or are missing."""
    found: dict[str, str] = {}
    for text in given:
        name, _, value = text.partition("=")
        name, value = name.strip(), value.strip()
        known = form.settings.get(name)
        if known is None:
            names = ", ".join(form.settings) or "none"
            raise InvalidRequest(
                f"The checker {form.name} has no setting {name[:40]!r}; it has: {names}.", param="settings"
            )
        if value and compile_pattern(f"(?:{known.pattern})").fullmatch(value) is None:
            raise InvalidRequest(f"The setting {name} of {form.name} must be: {known.help}.", param="settings")
        if value:
            found[name] = value
    missing = [name for name, setting in form.settings.items() if setting.required and name not in found]
    if missing:
        help_text = form.settings[missing[0]].help
        text = f"The checker {form.name} needs the setting {missing[0]}: {help_text}."
        raise InvalidRequest(text, param="settings")
    return tuple(sorted(found.items()))


def checked_kind(kind: object) -> str:
    """Return the name of a kind that a checker wrote, as it is shown, stored and counted."""
    text = "".join(character if character.isalnum() or character in "._/-" else "_" for character in str(kind).lower())
    return text[:MAX_KIND] if text.isascii() and text else "finding"


def detector_of(checker: Checker, kind: str) -> Detector:
    """Return the detector that represents a finding of a checker."""
    label = next((label for part, label in LABELS_OF_KINDS if part in kind), "TERM")
    title = f"{kind} ({checker.kind.title})"
    return Detector(kind, "checker", title, label, "", None, 0, None, "", "", 0)


def check_failed(rule: Any) -> Unavailable:
    """Return the error for a request that a checker could not check, where the rule blocks then."""
    contact = f" Ask {rule.contact} about this rule." if rule.contact else ""
    text = f"The guardrail {rule.name!r} could not be checked, and it blocks then; try again later.{contact}"
    return Unavailable(text, code="guardrail_unavailable", details={"guardrail": rule.name})
