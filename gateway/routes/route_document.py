"""The document of a route: ordered rules with conditions and targets, read strictly."""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from gateway.errors import InvalidRequest

Difficulty = Literal["small", "medium", "large"]
Turn = Literal["work", "title", "summary", "probe"]
Agent = Literal["main", "sub"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
DAYS: tuple[Day, ...] = get_args(Day)
Scalar = str | int | float | bool

RULES = "rules"
MAX_RULES = 50
MAX_VALUES = 100  # of one condition
MAX_NAMED = 16  # headers or fields of one rule
MAX_STARS = 200  # of a document: a request is compared with each, and each of its tools too
MAX_TARGETS = 8  # models of a list or of a split
MAX_TEXT = 256  # characters of a name, a value or a pattern
MAX_BYTES = 64 << 10  # of a document
MAX_DEPTH = 4  # members that the path of a body field names
MAX_WEIGHT = 1_000_000
MAX_PERCENT = 1000
MIN_WAIT_MS, MAX_WAIT_MS = 50, 10_000
CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
HEADER = re.compile(r"[a-z0-9-]{1,64}")
# Headers with credentials or of the connection: a rule reads none of them.
SECRET_HEADERS = frozenset(
    ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key", "set-cookie")
)


class Range(Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True, frozen=True):
    """Numbers from `at_least` up to, but not including, `below`."""

    at_least: int | None = None
    below: int | None = None


class BudgetShare(Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True, frozen=True):
    """The percentage of a limit that is used. `limit` is its id; without one, the fullest limit of the request
    counts."""

    at_least: int
    below: int | None = None
    limit: str = ""


class Hours(Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True, frozen=True):
    """A part of the day in a time zone, past midnight where it ends before it begins, and days of the week."""

    begin: str = field(default="00:00", name="from")
    end: str = field(default="00:00", name="to")
    zone: str = "UTC"
    days: tuple[Day, ...] = ()


class Conditions(Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True, frozen=True):
    """Conditions that must all hold; each holds for any of its values. `unless` are conditions that must not all
    hold."""

    headers: dict[str, str | tuple[str, ...]] = {}
    body: dict[str, Scalar | tuple[Scalar, ...]] = {}
    keys: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    applications: tuple[str, ...] = ()
    agent: Agent | UnsetType = UNSET
    turns: tuple[Turn, ...] = ()
    tools: bool | tuple[str, ...] | UnsetType = UNSET
    prompt_tokens: Range | UnsetType = UNSET
    images: bool | UnsetType = UNSET
    hours: Hours | UnsetType = UNSET
    budget: BudgetShare | UnsetType = UNSET
    difficulty: tuple[Difficulty, ...] = ()
    unless: "Conditions | UnsetType" = UNSET


class Split(Struct, forbid_unknown_fields=True, frozen=True):
    """Models with weights: a session stays with the one that it got first."""

    split: dict[str, int]


Target = str | tuple[str, ...] | Split
NO_CONDITIONS = Conditions()


class RouteRule(Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True, frozen=True):
    """A rule: the target of requests that fulfil its conditions."""

    use: Target
    name: str = ""
    when: Conditions = NO_CONDITIONS


class Judge(Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True, frozen=True):
    """A model that judges the difficulty of turns, and the longest time to wait for it: then the gateway judges."""

    model: str
    wait_ms: int = 1_000


class RouteDocument(Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True, frozen=True):
    """A route. The first rule with fulfilled conditions decides, and `otherwise` for all other requests. `reference` is
    the model for the comparison of costs; without one, the most expensive model of the route. With `keep_session` a
    session keeps its model until a larger one is chosen, or its prompt cache has expired. `judge` decides about the
    difficulty of turns."""

    otherwise: Target
    rules: tuple[RouteRule, ...] = ()
    reference: str = ""
    keep_session: bool = True
    judge: Judge | UnsetType = UNSET

    def targets(self) -> Iterator[tuple[str, Target]]:
        """Yield each target with its place in the document."""
        for place, rule in enumerate(self.rules):
            yield f"rules.{place}.use", rule.use
        yield "otherwise", self.otherwise

    def models(self) -> dict[str, str]:
        """Return each model with the place that names it first."""
        found: dict[str, str] = {}
        for place, target in self.targets():
            for model in models_of(target):
                found.setdefault(model, place)
        if self.reference:
            found.setdefault(self.reference, "reference")
        return found


def named_models(document: RouteDocument) -> dict[str, str]:
    """Return each model of a document, also the one that judges, with the place that names it first."""
    found = document.models()
    if isinstance(document.judge, Judge):
        found.setdefault(document.judge.model, "judge.model")
    return found


def models_of(target: Target) -> tuple[str, ...]:
    """Return the models of a target, in its order."""
    if isinstance(target, str):
        return (target,)
    if isinstance(target, Split):
        return tuple(target.split)
    return target


def read_document(value: Any) -> RouteDocument:
    """Return the route of a JSON value. InvalidRequest names the place of what is wrong."""
    if len(json.dumps(value, default=str)) > MAX_BYTES:
        raise _invalid("", f"a document has at most {MAX_BYTES // 1024} KB")
    try:
        document = msgspec.convert(value, RouteDocument, strict=True)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at ")
        raise _invalid(_path_of(place), text[:1].lower() + text[1:]) from None
    _check(document)
    return document


def write_document(document: RouteDocument) -> str:
    """Return the JSON text of a route, for `load_document`."""
    return msgspec.json.encode(document).decode()


class RouteInStore(Struct, frozen=True):
    """A stored route: the JSON of it in full (`value`), and the route that this release reads there, None where it
    cannot read the rest. `left_out` are the places that a later release wrote and this one does not read."""

    value: dict[str, Any]
    document: RouteDocument | None
    left_out: tuple[str, ...] = ()


def load_document(text: str) -> RouteDocument:
    """Return the route of a stored text, as `load_stored` does. ValidationError without a readable rest."""
    try:
        return msgspec.json.decode(text, type=RouteDocument)
    except msgspec.ValidationError:
        return msgspec.convert(_readable_part(msgspec.json.decode(text, type=dict[str, Any]))[0], RouteDocument)


def load_stored(text: str) -> RouteInStore:
    """Return a stored route, without what a later release wrote in it. A rule with an unknown condition is left out,
    since without the condition it would hold for other requests."""
    value = msgspec.json.decode(text, type=dict[str, Any])
    try:
        return RouteInStore(value, msgspec.convert(value, RouteDocument))
    except msgspec.ValidationError:
        kept, left_out = _readable_part(value)
    try:
        return RouteInStore(value, msgspec.convert(kept, RouteDocument), left_out)
    except msgspec.ValidationError:
        return RouteInStore(value, None, left_out)


def _readable_part(value: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the members and rules that this release reads, and the places of the others."""
    types = {field.encode_name: field.type for field in msgspec.structs.fields(RouteDocument)}
    stored = value.get(RULES, [])
    rules: list[Any] = stored if isinstance(stored, list) else []
    others = {name: member for name, member in value.items() if name != RULES or not isinstance(member, list)}
    kept = {name: member for name, member in others.items() if name in types and _is_readable(member, types[name])}
    kept[RULES] = [rule for rule in rules if _is_readable(rule, RouteRule)]
    left_out = [name for name in others if name not in kept or name == RULES]
    left_out += [f"{RULES}.{place}" for place, rule in enumerate(rules) if not _is_readable(rule, RouteRule)]
    return kept, tuple(left_out)


def _is_readable(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _check(document: RouteDocument) -> None:
    if len(document.rules) > MAX_RULES:
        raise _invalid("rules", f"a route has at most {MAX_RULES} rules")
    if sum(map(_count_stars, document.rules)) > MAX_STARS:
        raise _invalid("rules", f"a route has at most {MAX_STARS} times * in its values")
    names: set[str] = set()
    for place, rule in enumerate(document.rules):
        if len(rule.name) > 80:
            raise _invalid(f"rules.{place}.name", "a name has at most 80 characters")
        if rule.name and rule.name in names:
            raise _invalid(f"rules.{place}.name", f"another rule has the name {rule.name!r}")
        names.add(rule.name)
        _check_conditions(rule.when, f"rules.{place}.when")
    for path, target in document.targets():
        _check_target(target, path)
    if len(document.reference) > MAX_TEXT:
        raise _invalid("reference", f"a model name has at most {MAX_TEXT} characters")
    if isinstance(document.judge, Judge):
        _check_judge(document.judge, document)


def _check_judge(judge: Judge, document: RouteDocument) -> None:
    if not judge.model.strip() or len(judge.model) > MAX_TEXT:
        raise _invalid("judge.model", f"a model name has 1 to {MAX_TEXT} characters")
    if not MIN_WAIT_MS <= judge.wait_ms <= MAX_WAIT_MS:
        raise _invalid("judge.waitMs", f"the wait is {MIN_WAIT_MS} to {MAX_WAIT_MS} milliseconds")
    conditions = [when for rule in document.rules for when in (rule.when, rule.when.unless)]
    if not any(isinstance(when, Conditions) and when.difficulty for when in conditions):
        raise _invalid("judge", "no rule has the condition difficulty, so nothing would be judged")


def _count_stars(rule: RouteRule) -> int:
    """Return how often the values of a rule have the * for any characters."""
    count = 0
    for when in (rule.when, rule.when.unless):
        if isinstance(when, Conditions):
            accepted = [(one,) if isinstance(one, str) else one for one in when.headers.values()]
            tools = when.tools if isinstance(when.tools, tuple) else ()
            count += sum(value.count("*") for values in (*accepted, tools, when.applications) for value in values)
    return count


def _check_target(target: Target, path: str) -> None:
    models = models_of(target)
    if not 1 <= len(models) <= MAX_TARGETS:
        raise _invalid(path, f"a target has 1 to {MAX_TARGETS} models")
    if any(not model.strip() or len(model) > MAX_TEXT for model in models):
        raise _invalid(path, f"a model name has 1 to {MAX_TEXT} characters")
    if isinstance(target, Split):
        weights = target.split.values()
        if any(not 0 <= weight <= MAX_WEIGHT for weight in weights) or not any(weights):
            raise _invalid(f"{path}.split", f"weights are whole numbers from 0 to {MAX_WEIGHT}, not all of them 0")


def _check_conditions(when: Conditions, path: str, inner: bool = False) -> None:
    for name in ("keys", "teams", "projects", "applications"):
        _check_values(getattr(when, name), f"{path}.{name}")
    if isinstance(when.tools, tuple):
        _check_values(when.tools, f"{path}.tools")
    _check_headers(when, path)
    _check_fields(when, path)
    if isinstance(when.prompt_tokens, Range):
        _check_range(when.prompt_tokens.at_least, when.prompt_tokens.below, f"{path}.promptTokens", 1 << 40)
    if isinstance(when.budget, BudgetShare):
        _check_range(when.budget.at_least, when.budget.below, f"{path}.budget", MAX_PERCENT)
        _check_values((when.budget.limit,), f"{path}.budget.limit")
    if isinstance(when.hours, Hours):
        _check_hours(when.hours, f"{path}.hours")
    if isinstance(when.unless, Conditions):
        if inner:
            raise _invalid(f"{path}.unless", "unless cannot contain unless")
        _check_conditions(when.unless, f"{path}.unless", inner=True)


def _check_headers(when: Conditions, path: str) -> None:
    if len(when.headers) > MAX_NAMED:
        raise _invalid(f"{path}.headers", f"a rule reads at most {MAX_NAMED} headers")
    for header, accepted in when.headers.items():
        if not HEADER.fullmatch(header):
            raise _invalid(f"{path}.headers", f"{header[:64]!r} is no header name in lower case")
        if header in SECRET_HEADERS:
            raise _invalid(f"{path}.headers", f"{header!r} holds a secret, which no rule may read")
        _check_values((accepted,) if isinstance(accepted, str) else accepted, f"{path}.headers.{header}")


def _check_fields(when: Conditions, path: str) -> None:
    if len(when.body) > MAX_NAMED:
        raise _invalid(f"{path}.body", f"a rule reads at most {MAX_NAMED} fields")
    for member, values in when.body.items():
        if len(member) > MAX_TEXT or member.count(".") >= MAX_DEPTH or not all(member.split(".")):
            raise _invalid(f"{path}.body", f"{member[:64]!r} is no path of at most {MAX_DEPTH} members")
        _check_values(values if isinstance(values, tuple) else (values,), f"{path}.body.{member}")


def _check_values(values: tuple[Any, ...], path: str) -> None:
    if len(values) > MAX_VALUES:
        raise _invalid(path, f"a condition has at most {MAX_VALUES} values")
    if any(isinstance(value, str) and len(value) > MAX_TEXT for value in values):
        raise _invalid(path, f"a value has at most {MAX_TEXT} characters")


def _check_range(at_least: int | None, below: int | None, path: str, highest: int) -> None:
    if at_least is None and below is None:
        raise _invalid(path, "name atLeast, below, or both")
    low, high = at_least or 0, highest if below is None else below
    if not 0 <= low < high <= highest:
        raise _invalid(path, f"atLeast must be below below, both from 0 to {highest}")


def _check_hours(hours: Hours, path: str) -> None:
    for name, text in (("from", hours.begin), ("to", hours.end)):
        if not CLOCK.fullmatch(text):
            raise _invalid(f"{path}.{name}", f"{text[:16]!r} is no time such as 08:30")
    try:
        ZoneInfo(hours.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _invalid(f"{path}.zone", f"there is no time zone {hours.zone[:64]!r}") from None


def _invalid(path: str, reason: str) -> InvalidRequest:
    param = f"document.{path}" if path else "document"
    return InvalidRequest(f"Invalid value for '{param}': {reason}.", param=param, code="route_invalid")


def _path_of(place: str) -> str:
    """Return the dotted path of a place such as `$.rules[0].when`."""
    text = place.strip("`").removeprefix("key").removeprefix(" in ").strip("`").removeprefix("$")
    return text.replace("[", ".").replace("]", "").replace("....", ".").strip(".")
