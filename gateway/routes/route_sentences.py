"""The rules of a route as sentences for people."""

from collections.abc import Iterator

from gateway.routes.route_document import (
    BudgetShare,
    Conditions,
    Hours,
    Judge,
    Range,
    RouteDocument,
    Scalar,
    Split,
    Target,
)

SHOWN = 5  # values of a condition
WHO = {"keys": "the key", "teams": "a team of", "projects": "the project", "applications": "the application"}
AGENTS = {"main": "the main agent calls", "sub": "a sub-agent calls"}


def sentences_of(document: RouteDocument) -> list[str]:
    """Return a sentence for each rule, one for the rest, and one for the model that judges, if there is one."""
    found = []
    for place, rule in enumerate(document.rules, start=1):
        conditions = list(_conditions(rule.when))
        name = f"{rule.name}: " if rule.name else f"{place}. "
        found.append(f"{name}{' and '.join(conditions) or 'always'} → {_target(rule.use)}")
    found.append(f"otherwise → {_target(document.otherwise)}")
    if isinstance(document.judge, Judge):
        found.append(f"{document.judge.model} judges the difficulty, within {document.judge.wait_ms} ms")
    return found


def _target(target: Target) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, Split):
        total = sum(target.split.values())
        return ", ".join(f"{model} for {weight * 100 / total:g} %" for model, weight in target.split.items())
    return ", then ".join(target)


def _conditions(when: Conditions) -> Iterator[str]:
    for name, words in WHO.items():
        if getattr(when, name):
            yield f"{words} {_any(getattr(when, name))}"
    for header, values in when.headers.items():
        yield f"header {header} is {_any((values,) if isinstance(values, str) else values)}"
    for path, accepted in when.body.items():
        yield f"{path} is {_any(accepted if isinstance(accepted, tuple) else (accepted,))}"
    yield from _conversation(when)
    yield from _amounts(when)
    if isinstance(when.unless, Conditions):
        yield f"not ({' and '.join(_conditions(when.unless))})"


def _conversation(when: Conditions) -> Iterator[str]:
    if isinstance(when.agent, str):
        yield AGENTS[when.agent]
    if when.turns:
        yield f"the turn is {_any(when.turns)}"
    if when.difficulty:
        yield f"the turn is {_any(when.difficulty)}"
    if isinstance(when.tools, bool):
        yield "tools are offered" if when.tools else "no tools are offered"
    elif isinstance(when.tools, tuple):
        yield f"the tool {_any(when.tools)} is offered"


def _amounts(when: Conditions) -> Iterator[str]:
    if isinstance(when.prompt_tokens, Range):
        yield f"the prompt has {_range(when.prompt_tokens.at_least, when.prompt_tokens.below)} tokens"
    if isinstance(when.images, bool):
        yield "the prompt has images" if when.images else "the prompt has no images"
    if isinstance(when.hours, Hours):
        yield _hours(when.hours)
    if isinstance(when.budget, BudgetShare):
        limit = f"the limit {when.budget.limit}" if when.budget.limit else "a limit"
        yield f"{_range(when.budget.at_least, when.budget.below)} % of {limit} is used"


def _range(at_least: int | None, below: int | None) -> str:
    if below is None:
        return f"at least {at_least:,}"
    if not at_least:
        return f"fewer than {below:,}"
    return f"{at_least:,} to fewer than {below:,}"


def _hours(hours: Hours) -> str:
    days = f" on {_any(hours.days)}" if hours.days else ""
    return f"it is between {hours.begin} and {hours.end} ({hours.zone}){days}"


def _any(values: tuple[Scalar, ...]) -> str:
    shown = " or ".join(map(str, values[:SHOWN]))
    return shown if len(values) <= SHOWN else f"{shown} or one of {len(values) - SHOWN} others"
