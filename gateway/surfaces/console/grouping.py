"""The names by which usage is stacked: to which name each row of the sums belongs, the requests behind it, and the
filters that restrict usage to one name.

Statistics are summed up by key, and for each key and project by model and provider, by app, by each tag, by session, by
operation, and by the code of errors. Groups and filters of one of these families are answered by them, also together
with those that follow from the key: key, person, team and project. Other combinations are summed from the usage rows.
The end user is a tag.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.accounts.keys import KeyInfo
from gateway.accounts.members import list_members
from gateway.accounts.teams import list_teams
from gateway.metering.activity import Dimension, Owners
from gateway.metering.cross_sums import CrossSlot
from gateway.metering.rollups.rollup_table import ERROR, OPERATION, OTHER, SESSION, USUAL_OPERATION
from gateway.metering.usage_table import raw_id
from gateway.surfaces.console.shown_figures import ATTRIBUTE_LABELS
from gateway.surfaces.visitors.visitor import Visitor

NO_APP = "No app named"
NO_TEAM = "No team"
NO_SESSION = "No session"
NO_ATTRIBUTE = "Not stated"
NO_TAG = "Without this tag"
NO_END_USER = "No end user named"
NO_ERROR = "No error"
END_USER = "user"  # the tag that names the end user of an application
ALL_OTHERS = "All others"
ATTRIBUTE = "attribute"
PAIR = " · "  # between the names of two groups

NONE: Mapping[str, str] = {}  # no filters

Values = tuple[Any, ...]  # of a row


class GroupName(NamedTuple):
    """The name of a part. `filters` are those of the request log that find its requests; none: it has no filter.
    `pair` are the names in two groups of which it is made."""

    id: str
    name: str
    filters: Mapping[str, str] = {}
    pair: tuple["GroupName", ...] = ()


class UsageValues(NamedTuple):
    """Restricts usage to some values of a dimension that is not one of keys. `names` are the values of a tag."""

    dimension: Dimension
    matches: Callable[[Values], bool]
    names: tuple[str, ...] = ()


class GroupingScope(NamedTuple):
    """The visitor, the keys of the period by id, and the name of the tag."""

    visitor: Visitor
    keys: Mapping[str, KeyInfo]
    tag: str


Namer = Callable[[Values], GroupName]  # of a row, by its values


class Grouping(NamedTuple):
    """A way to group the rows of a dimension. `attribute`: by an attribute of the person at the time of the usage."""

    label: str
    dimension: Dimension
    find_name: Callable[[GroupingScope], Namer]
    attribute: str = ""

    @property
    def family(self) -> str:
        """Return by what its rows are summed up; "" for what follows from the key."""
        if self.attribute:
            return ATTRIBUTE
        if self.dimension == "tag":
            return self.label.lower()
        return "" if self.dimension in ("api_key", "owner") else self.dimension


def _by_model(scope: GroupingScope) -> Namer:
    def name(values: tuple[Any, ...]) -> GroupName:
        full = f"{values[1]}/{values[0]}"
        return GroupName(full, full, {"model": full})

    return name


def _by_provider(scope: GroupingScope) -> Namer:
    return lambda values: GroupName(values[1], values[1], {"provider": values[1]})


def _by_app(scope: GroupingScope) -> Namer:
    known = scope.visitor.services.accounts.sources

    def name(values: tuple[Any, ...]) -> GroupName:
        app = known.canonical(values[0])
        return GroupName(app, app or NO_APP, {"source": app or "unknown"})

    return name


def _by_session(scope: GroupingScope) -> Namer:
    return lambda values: _name_value(values[0], NO_SESSION, {"session": values[0]}, {"noSession": "true"})


def _by_tag(scope: GroupingScope) -> Namer:
    return lambda values: _name_value(values[0], NO_TAG, {"metadata": f"{scope.tag}:{values[0]}"})


def _by_end_user(scope: GroupingScope) -> Namer:
    return lambda values: _name_value(values[0], NO_END_USER, {"metadata": f"{END_USER}:{values[0]}"})


def _by_operation(scope: GroupingScope) -> Namer:
    def name(values: Values) -> GroupName:
        # Usage of the usual operation is what is left of all usage.
        operation = values[0] or USUAL_OPERATION
        if operation == OTHER:
            return GroupName(OTHER, ALL_OTHERS)
        return GroupName(values[0], operation, {"operation": operation} if values[0] else {})

    return name


def _by_error(scope: GroupingScope) -> Namer:
    return lambda values: _name_value(values[0], NO_ERROR, {"errorCode": values[0]}, {"noError": "true"})


def _by_attribute(scope: GroupingScope) -> Namer:
    return lambda values: _name_value(values[0], NO_ATTRIBUTE, {})


def _name_value(value: str, missing: str, filters: Mapping[str, str], without: Mapping[str, str] = NONE) -> GroupName:
    """Return the name of a session or of a tag's value; those beyond the most expensive have one name. `without` are
    the filters of the request log for usage without a value."""
    if value == OTHER:
        return GroupName(OTHER, ALL_OTHERS)
    if not value:
        return GroupName("", missing, without)
    return GroupName(value, value, filters)


def _by_key(scope: GroupingScope) -> Namer:
    return _name_keys(scope, lambda key: GroupName(key.id, key.description or key.id, {"apiKeyId": key.id}))


def _by_person(scope: GroupingScope) -> Namer:
    visitor = scope.visitor
    people = {
        member.id: member
        for organization_id in visitor.memberships
        for member in list_members(visitor.services.store.database, organization_id, service_accounts=True)
    }

    def name(key: KeyInfo) -> GroupName:
        member = people[key.member_id]
        return GroupName(member.user_id, member.name or member.email or member.user_id, {"userId": member.user_id})

    return _name_keys(scope, name)


def _by_project(scope: GroupingScope) -> Namer:
    visitor = scope.visitor
    listed = visitor.projects()
    projects = {project.id: GroupName(project.id, project.name, {"projectId": project.id}) for project in listed}
    of_keys = _name_keys(scope, lambda key: projects[key.project_id])
    of_projects = {raw_id(project_id): named for project_id, named in projects.items()}
    return lambda values: of_projects.get(values[0]) or of_keys(values)


def _by_team(scope: GroupingScope) -> Namer:
    """A person in several teams counts for their combination, so that the sum stays that of all requests."""
    visitor = scope.visitor
    teams: dict[str, list[str]] = {}
    for organization_id in visitor.memberships:
        reach = visitor.reach(organization_id, "teams:read")
        for team in list_teams(visitor.services.store.database, organization_id) if reach else ():
            if reach.whole or team.id in reach.teams:
                for member_id in team.member_ids:
                    teams.setdefault(member_id, []).append(team.name)

    def name(key: KeyInfo) -> GroupName:
        text = ", ".join(sorted(teams.get(key.member_id, ()))) or NO_TEAM
        return GroupName(text, text, {"team": text})

    return _name_keys(scope, name)


def _name_keys(scope: GroupingScope, name: Callable[[KeyInfo], GroupName]) -> Namer:
    named = {raw_id(key.id): name(key) for key in scope.keys.values()}
    return lambda values: named[values[0]]


GROUPS: dict[str, Grouping] = {
    "model": Grouping("Model", "model", _by_model),
    "provider": Grouping("Provider", "model", _by_provider),
    "apiKey": Grouping("API key", "api_key", _by_key),
    "user": Grouping("Person", "api_key", _by_person),
    "team": Grouping("Team", "api_key", _by_team),
    **{
        name: Grouping(ATTRIBUTE_LABELS[name], "api_key", _by_attribute, name)
        for name in ("costCenter", "department", "division")
    },
    "project": Grouping("Project", "owner", _by_project),
    "app": Grouping("App", "source", _by_app),
    "tag": Grouping("Tag", "tag", _by_tag),
    "endUser": Grouping("End user", "tag", _by_end_user),
    "session": Grouping("Session", "tag", _by_session),
    "operation": Grouping("Operation", "tag", _by_operation),
    "error": Grouping("Error code", "tag", _by_error),
}


def split_groups(group: str) -> dict[str, Grouping]:
    """Return the groups by which the parts of a group can be divided further."""
    return {name: grouping for name, grouping in GROUPS.items() if name != group}


def is_crossed(groups: Sequence[Grouping], filters: set[str]) -> bool:
    """Return whether the statistics have no sums of one or two groups with filters of these families, because they are
    of several families, or of an attribute, whose values are known by key and hour, and something else."""
    families = (filters | {grouping.family for grouping in groups}) - {""}
    return len(families) > 1 or (ATTRIBUTE in families and len(groups) > 1)


BY_KEY: dict[str, Dimension] = {
    "model": "api_key_model",
    "source": "api_key_source",
    **dict.fromkeys(("tag", "end user", "session", "operation", "error code"), "api_key_tag"),
}


def find_dimension(groups: Sequence[Grouping], filters: set[str]) -> Dimension:
    """Return the dimension with rows for one or two groups and filters of these families."""
    if all(grouping.family for grouping in groups):
        return groups[0].dimension
    families = filters | {grouping.family for grouping in groups}
    for family, dimension in BY_KEY.items():
        if family in families:
            return dimension
    return groups[0].dimension if len(groups) == 1 else "api_key"


def name_rows(groups: Sequence[Grouping], scope: GroupingScope, dimension: Dimension) -> Namer:
    """Return the namer of one or two groups for the rows of a dimension."""
    return _join_names([_name_part(grouping, grouping.find_name(scope), dimension) for grouping in groups])


def _join_names(namers: Sequence[Namer]) -> Namer:
    if len(namers) == 1:
        return namers[0]

    def name(values: Values) -> GroupName:
        pair = tuple(one(values) for one in namers)
        filters = {}
        if all(one.filters for one in pair):
            filters = {name: value for one in pair for name, value in one.filters.items()}
        ident = OTHER if OTHER in (pair[0].id, pair[1].id) else "\n".join(one.id for one in pair)
        return GroupName(ident, PAIR.join(one.name for one in pair), filters, pair)

    return name


def _name_part(grouping: Grouping, namer: Namer, dimension: Dimension) -> Namer:
    """Return a namer for the rows of a dimension that may be of keys and of values."""
    if not dimension.startswith("api_key_"):
        return namer
    if grouping.family == "":
        return lambda values: namer(values[:1])
    return lambda values: namer(values[1:])


# Filters: parameters of the page, named like those of the request log.


class UsageFilter(NamedTuple):
    """A parameter that restricts usage to one name of a group."""

    parameter: str
    group: str


FILTERS = (
    UsageFilter("userId", "user"),
    UsageFilter("team", "team"),
    UsageFilter("model", "model"),
    UsageFilter("provider", "provider"),
    UsageFilter("source", "app"),
    UsageFilter("session", "session"),
    UsageFilter("operation", "operation"),
    UsageFilter("errorCode", "error"),
    UsageFilter("metadata", "tag"),
)
MAX_VALUE_LENGTH = 400


PARAMETERS = {"projectId", "apiKeyId", *(one.parameter for one in FILTERS)}  # all that restrict usage


def read_filters(arguments: Mapping[str, str]) -> dict[UsageFilter, str]:
    """Return the filters of a page with their values."""
    given = {one: arguments.get(one.parameter, "")[:MAX_VALUE_LENGTH] for one in FILTERS}
    return {one: value for one, value in given.items() if value and (one.group != "tag" or all(value.partition(":")))}


def families_of(filters: Mapping[UsageFilter, str]) -> set[str]:
    """Return the families of filters."""
    return {GROUPS[one.group].family for one in filters}


def filter_keys(filters: Mapping[UsageFilter, str], scope: GroupingScope) -> Owners | None:
    """Return the keys to which filters of people and teams restrict usage; None without such a filter."""
    chosen = {one: value for one, value in filters.items() if GROUPS[one.group].family == ""}
    if not chosen:
        return None
    namers = {one: GROUPS[one.group].find_name(scope) for one in chosen}
    idents = tuple(
        ident for ident in scope.keys if all(namers[one]((raw_id(ident),)).id == value for one, value in chosen.items())
    )
    return Owners(key_ids=idents)


def filter_values(filters: Mapping[UsageFilter, str], scope: GroupingScope) -> UsageValues | None:
    """Return the filter of models, providers, apps, sessions or values of a tag; None without one."""
    chosen = {one: value for one, value in filters.items() if GROUPS[one.group].family}
    if not chosen:
        return None
    namers = {one: GROUPS[one.group].find_name(scope) for one in chosen}
    dimension = GROUPS[next(iter(chosen)).group].dimension

    def matches(values: Values) -> bool:
        return all(namers[one](values).filters.get(one.parameter) == value for one, value in chosen.items())

    names = tuple(value.partition(":")[2] if one.group == "tag" else value for one, value in chosen.items())
    return UsageValues(dimension, matches, names if dimension == "tag" else ())


# The groups of one tag.
TAG_OF = {"session": SESSION, "operation": OPERATION, "error": ERROR, "endUser": END_USER}


def find_tag(group: str, split: str, filters: Mapping[UsageFilter, str], tag: str) -> str:
    """Return the tag that is read: the name of a caller's tag, or one of the gateway's own names."""
    for one in (group, split, *(one.group for one in filters)):
        if one in TAG_OF:
            return TAG_OF[one]
    named = next((value for one, value in filters.items() if one.group == "tag"), "")
    return named.partition(":")[0] or tag


def find_caller_tag(filters: Mapping[UsageFilter, str], tag: str) -> str:
    """Return the name of the caller's tag: that of a filter, else the chosen one."""
    named = next((value for one, value in filters.items() if one.group == "tag"), "")
    return named.partition(":")[0] or tag


# Rows of combinations that are summed from usage rows: each group and filter reads its slot of their values.


def slot_of(group: str, tag: str) -> CrossSlot:
    """Return the slot of a group; `tag` is the name of the caller's tag."""
    grouping = GROUPS[group]
    if grouping.attribute:
        return CrossSlot("held", grouping.attribute)
    if grouping.dimension in ("api_key", "owner"):
        return CrossSlot("key")
    if grouping.dimension == "tag":
        return CrossSlot("tag", TAG_OF.get(group, tag))
    return CrossSlot("model") if grouping.dimension == "model" else CrossSlot("source")


def list_slots(
    groups: Sequence[str], filters: Mapping[UsageFilter, str], scope: GroupingScope
) -> tuple[CrossSlot, ...]:
    """Return the slots that groups and filters read. Filters of keys choose the owners instead."""
    filtered = [one.group for one in filters if GROUPS[one.group].family]
    return tuple(dict.fromkeys(slot_of(one, scope.tag) for one in (*groups, *filtered)))


def name_slots(groups: Sequence[str], scope: GroupingScope, slots: Sequence[CrossSlot]) -> Namer:
    """Return the namer of one or two groups for the rows of slots."""
    return _join_names([_name_slot(one, scope, slots) for one in groups])


def _name_slot(group: str, scope: GroupingScope, slots: Sequence[CrossSlot]) -> Namer:
    namer, slot = GROUPS[group].find_name(scope), slot_of(group, scope.tag)
    first = sum(one.width for one in slots[: slots.index(slot)])
    return lambda values: namer(values[first : first + slot.width])


def filter_slots(
    filters: Mapping[UsageFilter, str], scope: GroupingScope, slots: Sequence[CrossSlot]
) -> UsageValues | None:
    """Return the filter of the rows of slots; None without one, or with filters of keys only."""
    chosen = {one: value for one, value in filters.items() if GROUPS[one.group].family}
    if not chosen:
        return None
    namers = {one: _name_slot(one.group, scope, slots) for one in chosen}

    def matches(values: Values) -> bool:
        return all(namers[one](values).filters.get(one.parameter) == value for one, value in chosen.items())

    return UsageValues("rows", matches)
