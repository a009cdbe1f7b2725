"""`/scim/v2/Groups`: the groups of the identity provider."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from gateway.accounts.provisioning.provisioned_groups import (
    GroupChange,
    GroupLookup,
    ProvisionedGroup,
    ProvisionedGroups,
)
from gateway.accounts.provisioning.user_rows import StaleVersion
from gateway.errors import Conflict, InvalidRequest
from gateway.runtime.threads import compute_if
from gateway.surfaces.scim import patches, resources, scim_call
from gateway.surfaces.scim.attributes import COMMON, GROUP, GROUPS_TYPE, MEMBERS, resolve
from gateway.surfaces.scim.filters import (
    Comparison,
    FilterNode,
    PatchPath,
    attributes_in,
    comparisons_in,
    matches_value,
    parse_path,
)
from gateway.surfaces.scim.patches import PatchOperation
from gateway.surfaces.scim.resources import etag_of, project, show_group
from gateway.surfaces.scim.scim_answers import ADD, REMOVE, REPLACE
from gateway.surfaces.scim.scim_call import ScimCall
from gateway.surfaces.web.http import Outbound

# Changes of groups: the members that a request states, and PATCH in the forms that Entra ID and Okta send.

MAX_MEMBERS = 10_000  # of one request
MAX_MATCHES = 200_000  # comparisons of members with the filters of one request
MAX_ID_LENGTH = 80
MAX_NAME_LENGTH = 255
DISPLAY_NAME = GROUP.by_name["displayname"]
EXTERNAL_ID = COMMON["externalid"]


class GroupDraft:
    """The changes that the operations of a request make to a group. `load` returns the current members; it is called
    only where a change depends on them, and then `depends` is true."""

    def __init__(self, load: Callable[[], Sequence[str]]) -> None:
        self._load = load
        self._current: Sequence[str] | None = None
        self.depends = False
        self.name: str | None = None
        self.external_id: str | None = None
        self._replaced = False
        self._added: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        self._stated = 0
        self._compared = 0

    def assign(self, given: Mapping[str, Any], operation: str) -> None:
        """Take the attributes of a body, or of an operation without a path. Unknown and read-only ones are ignored."""
        for name, value in given.items():
            key = name.rpartition(":")[2].lower() if name.lower().startswith("urn:") else name.lower()
            if key == "displayname":
                self._set_name(value)
            elif key == "externalid":
                self._set_external_id(value)
            elif key == "members":
                self._set_members(operation, value)

    def apply(self, operation: PatchOperation) -> None:
        """Apply an operation of PATCH. Raises InvalidRequest."""
        if not operation.path:
            if not isinstance(operation.value, dict):
                text = "Without a path, the value must be an object with the attributes."
                raise InvalidRequest(text, param="value", code="invalid_value")
            self.assign(operation.value, operation.name)
            return
        parsed = parse_path(operation.path)
        path = resolve(GROUPS_TYPE, parsed.attribute)
        attribute = path.attribute
        if attribute is MEMBERS:
            self._apply_members(operation, parsed, path.part is not None)
        elif attribute is DISPLAY_NAME:
            self._set_name(None if operation.name == REMOVE else operation.value)
        elif attribute is EXTERNAL_ID:
            self._set_external_id(None if operation.name == REMOVE else operation.value)
        elif attribute is None:
            raise InvalidRequest(f"There is no attribute {parsed.attribute[:80]}.", param="path", code="invalid_path")
        elif attribute is not COMMON["schemas"]:
            raise InvalidRequest(f"{parsed.attribute[:80]} is read-only.", param="path", code="read_only")

    def change(self) -> GroupChange:
        """Return the change that all operations make together."""
        removed = tuple(self._removed)
        if self._replaced:
            removed = tuple(member_id for member_id in self._members() if member_id not in self._added)
        return GroupChange(self.name, self.external_id, tuple(self._added), removed)

    def _apply_members(self, operation: PatchOperation, parsed: PatchPath, has_part: bool) -> None:
        has_part = has_part or bool(parsed.part)
        if parsed.chosen is None and not has_part:
            self._set_members(operation.name, operation.value)
        elif operation.name != REMOVE or has_part or parsed.chosen is None:
            text = "Members are added by their ids, and removed by their ids or by a filter."
            raise InvalidRequest(text, param="path", code="invalid_path")
        else:
            for member_id in self._choose(parsed.chosen):
                self._drop(member_id)

    def _set_members(self, operation: str, value: Any) -> None:
        if operation == REMOVE:
            if value is None or value == []:
                self._replace({})
            else:
                for member_id in self._read_members(value):
                    self._drop(member_id)
        elif operation == ADD:
            for member_id in self._read_members(value):
                self._added[member_id] = None
                self._removed.pop(member_id, None)
        else:
            self._replace(dict.fromkeys(self._read_members(value)))

    def _replace(self, members: dict[str, None]) -> None:
        self._replaced = True
        self._added = members
        self._removed = {}

    def _drop(self, member_id: str) -> None:
        self._added.pop(member_id, None)
        self._removed[member_id] = None

    def _read_members(self, value: Any) -> list[str]:
        given = value if isinstance(value, list) else [value]
        if value is None:
            given = []
        self._stated += len(given)
        if self._stated > MAX_MEMBERS:
            text = f"A request states at most {MAX_MEMBERS:,} members; send the others in further requests."
            raise InvalidRequest(text, param="members", code="too_many")
        return [_read_member(member) for member in given]

    def _choose(self, chosen: FilterNode) -> Collection[str]:
        """Return the members that fulfil a filter."""
        if isinstance(chosen, Comparison) and _names_member(chosen):
            return [chosen.value] if isinstance(chosen.value, str) else []
        members = self._members() if not self._replaced else ()
        candidates = [member for member in dict.fromkeys((*members, *self._added)) if member not in self._removed]
        self._compared += len(candidates) * comparisons_in(chosen)
        if self._compared > MAX_MATCHES:
            text = "The filters of this request are compared with too many members; name the members by their ids."
            raise InvalidRequest(text, param="path", code="too_many")
        found = [member for member in candidates if matches_value(chosen, MEMBERS, {"value": member, "type": "User"})]
        if not found:
            raise InvalidRequest("No member fulfils the filter.", param="path", code="no_target")
        return found

    def _members(self) -> Sequence[str]:
        self.depends = True
        if self._current is None:
            self._current = self._load()
        return self._current

    def _set_name(self, value: Any) -> None:
        if not isinstance(value, str) or not value.strip():
            raise resources.refuse(DISPLAY_NAME, "it is required")
        resources.check_text(DISPLAY_NAME, value, MAX_NAME_LENGTH)
        self.name = value.strip()

    def _set_external_id(self, value: Any) -> None:
        text = resources.read_value(EXTERNAL_ID, value) or ""
        resources.check_text(EXTERNAL_ID, text, MAX_NAME_LENGTH)
        self.external_id = text


def _read_member(given: Any) -> str:
    member_id = given
    if isinstance(given, dict):
        member_id = given.get("value")
        if str(given.get("type") or "User").lower() != "user":
            raise resources.refuse(MEMBERS, "groups within groups are not supported")
    if not isinstance(member_id, str) or not 1 <= len(member_id) <= MAX_ID_LENGTH or "\0" in member_id:
        raise resources.refuse(MEMBERS, "the id of a user is expected as value")
    return member_id


ATTEMPTS = 5  # of a change without If-Match that another change overtakes
MAX_LISTED_MEMBERS = 20_000  # of all groups on a page, which then has fewer groups
THREAD_MEMBERS = 500


def list_groups(call: ScimCall) -> Outbound:
    """List the groups with their members, all or those that fulfil a filter."""
    query = scim_call.read_query(call)
    return scim_call.reply_list(call, query, *select_groups(call, query))


def select_groups(call: ScimCall, query: scim_call.ScimQuery) -> tuple[int, list[scim_call.Json]]:
    """Return how many groups fulfil a query, and those of the page."""
    groups = _groups(call)
    show = partial(show_group, base_url=call.base_url)
    with call.services.background.reports.turn(call.organization_id):
        if query.node is None:
            total, page = groups.page(call.organization_id, GroupLookup(), query.start - 1, query.count)
        else:
            with_members = "members" in attributes_in(query.node)
            pieces = groups.scan(call.organization_id, _lookup_of(query), with_members)
            total, page = scim_call.select(GROUPS_TYPE, query, pieces, show)
        if _shows_members(query.attributes, query.excluded):
            page = _load_members(groups, page)
    large = sum(len(group.member_ids) for group in page) > THREAD_MEMBERS
    shown = compute_if(large, _show_all, page, call.base_url)
    return total, [project(GROUPS_TYPE, group, query.attributes, query.excluded) for group in shown]


def find_group(call: ScimCall) -> Outbound:
    """Return one group with its members."""
    given = call.selection()
    with_members = _shows_members(given.get("attributes", ""), given.get("excludedAttributes", ""))
    return _reply(call, _groups(call).find(call.organization_id, call.resource_id, with_members))


def create_group(call: ScimCall) -> Outbound:
    """Create a group. Its name gives nothing unless a group rule of the organization names it."""
    draft = GroupDraft(tuple)
    draft.assign(call.body(), REPLACE)
    change = draft.change()
    if change.name is None:
        raise resources.refuse(DISPLAY_NAME, "it is required")
    groups = _groups(call)
    group_id = groups.create(call.client, change.name, change.external_id or "", change.added)
    return _reply(call, groups.find(call.organization_id, group_id), 201)


def replace_group(call: ScimCall) -> Outbound:
    """Replace the name and the members of a group."""
    body = call.body()

    def edit(draft: GroupDraft) -> None:
        draft.assign({"externalId": None, "members": [], **body}, REPLACE)

    return _change(call, edit, call.is_long())


def patch_group(call: ScimCall) -> Outbound:
    """Rename a group, or add and remove members. Group rules apply to them when the response is sent."""
    operations = patches.read_operations(call.body())

    def edit(draft: GroupDraft) -> None:
        for operation in operations:
            draft.apply(operation)

    return _change(call, edit, call.is_long() or any(map(_has_filter, operations)))


def delete_group(call: ScimCall) -> Outbound:
    """Delete a group. Its members lose what group rules gave them for it."""
    groups = _groups(call)
    version = ""
    if call.inbound.header("if-match"):
        group = groups.find(call.organization_id, call.resource_id, False)
        call.check_precondition(etag_of(group))
        version = group.version
    groups.delete(call.client, call.resource_id, version)
    return call.reply(None, 204)


def _has_filter(operation: PatchOperation) -> bool:
    """Return whether an operation compares all members with a filter."""
    try:
        chosen = parse_path(operation.path).chosen if operation.path else None
    except InvalidRequest:
        return False
    return chosen is not None and not _names_member(chosen)


def _names_member(chosen: FilterNode) -> bool:
    """Return whether a filter names one member by its id."""
    return isinstance(chosen, Comparison) and (chosen.path.lower(), chosen.operator) == ("value", "eq")


def _change(call: ScimCall, edit: Callable[[GroupDraft], None], is_long: bool) -> Outbound:
    """Apply a change to the group in the path; `is_long`: it takes noticeable time. One that depends on the members is
    repeated when another change overtakes it, unless If-Match names a version."""
    groups = _groups(call)
    for _ in range(ATTEMPTS):
        before = groups.find(call.organization_id, call.resource_id, False)
        is_bound = call.check_precondition(etag_of(before))
        draft, change = _edited(groups, before.id, edit, is_long)
        version = before.version if is_bound or draft.depends else ""
        try:
            groups.update(call.client, before.id, change, version)
        except StaleVersion:
            if is_bound:
                raise
            continue
        return _reply(call, groups.find(call.organization_id, before.id))
    raise Conflict("The group is changed by too many requests at the same time; try again.")


def _edited(
    groups: ProvisionedGroups, group_id: str, edit: Callable[[GroupDraft], None], is_long: bool
) -> tuple[GroupDraft, GroupChange]:
    """Return the edited draft and its change. Long work is done in a thread, which must not read the store: the members
    are read before."""
    load: Callable[[], Sequence[str]] = partial(groups.members_of, group_id)
    if is_long:
        load = partial(tuple, load())
    draft = GroupDraft(load)

    def run() -> GroupChange:
        edit(draft)
        return draft.change()

    return draft, compute_if(is_long, run)


def _reply(call: ScimCall, group: ProvisionedGroup, status: int = 200) -> Outbound:
    given = call.selection()
    shown = compute_if(len(group.member_ids) > THREAD_MEMBERS, show_group, group, call.base_url)
    location = shown["meta"]["location"] if status == 201 else ""
    shown = project(GROUPS_TYPE, shown, given.get("attributes", ""), given.get("excludedAttributes", ""))
    return call.reply(shown, status, etag_of(group), location)


def _show_all(groups: list[ProvisionedGroup], base_url: str) -> list[dict[str, Any]]:
    return [show_group(group, base_url) for group in groups]


def _load_members(groups: ProvisionedGroups, page: list[ProvisionedGroup]) -> list[ProvisionedGroup]:
    """Return the groups of a page with their members; the page ends where it would have too many."""
    loaded: list[ProvisionedGroup] = []
    count = 0
    for group in page:
        group = replace(group, member_ids=groups.members_of(group.id))
        count += len(group.member_ids)
        if loaded and count > MAX_LISTED_MEMBERS:
            break
        loaded.append(group)
    return loaded


def _shows_members(wanted: str, excluded: str) -> bool:
    if wanted:
        return "members" in wanted.lower()
    return "members" not in [name.strip().lower() for name in excluded.split(",")]


def _groups(call: ScimCall) -> ProvisionedGroups:
    return call.services.management.provisioned_groups


def _lookup_of(query: scim_call.ScimQuery) -> GroupLookup:
    known = query.equalities()
    return GroupLookup(
        id=known.get("id", ""),
        name=known.get("displayname", ""),
        member_id=known.get("members.value", known.get("members", "")),
    )
