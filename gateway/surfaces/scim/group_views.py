"""`/scim/v2/Groups`: the groups of the identity provider."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from gateway.accounts.provisioning.provisioned_groups import (
    GroupChange,
    GroupLookup,
    ProvisionedGroup,
    ProvisionedGroups,
)
from gateway.accounts.provisioning.provisioning_client import StaleVersion
from gateway.errors import Conflict
from gateway.runtime.threads import compute_if
from gateway.surfaces.http import Outbound
from gateway.surfaces.scim import list_queries, patches, values
from gateway.surfaces.scim.attributes import GROUPS_TYPE
from gateway.surfaces.scim.filters import attributes_in
from gateway.surfaces.scim.group_changes import DISPLAY_NAME, GroupDraft
from gateway.surfaces.scim.resources import etag_of, project, show_group
from gateway.surfaces.scim.scim_call import ScimCall

ATTEMPTS = 5  # of a change without If-Match that another change overtakes
MAX_LISTED_MEMBERS = 20_000  # of all groups on a page, which then has fewer groups
THREAD_MEMBERS = 500


def list_groups(call: ScimCall) -> Outbound:
    """List the groups with their members, all or those that fulfil a filter."""
    query = list_queries.read_query(call)
    return list_queries.reply_list(call, query, *select_groups(call, query))


def select_groups(call: ScimCall, query: list_queries.ScimQuery) -> tuple[int, list[list_queries.Json]]:
    """Return how many groups fulfil a query, and those of the page."""
    groups = _groups(call)
    show = partial(show_group, base_url=call.base_url)
    with call.services.background.reports.turn(call.organization_id):
        if query.node is None:
            total, page = groups.page(call.organization_id, GroupLookup(), query.start - 1, query.count)
        else:
            with_members = "members" in attributes_in(query.node)
            pieces = groups.scan(call.organization_id, _lookup_of(query), with_members)
            total, page = list_queries.select(GROUPS_TYPE, query, pieces, show)
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
    draft.assign(call.body(), patches.REPLACE)
    change = draft.change()
    if change.name is None:
        raise values.refuse(DISPLAY_NAME, "it is required")
    groups = _groups(call)
    group_id = groups.create(call.client, change.name, change.external_id or "", change.added)
    return _reply(call, groups.find(call.organization_id, group_id), 201)


def replace_group(call: ScimCall) -> Outbound:
    """Replace the name and the members of a group."""
    body = call.body()

    def edit(draft: GroupDraft) -> None:
        draft.assign({"externalId": None, "members": [], **body}, patches.REPLACE)

    return _change(call, edit)


def patch_group(call: ScimCall) -> Outbound:
    """Rename a group, or add and remove members. Group rules apply to them when the response is sent."""
    operations = patches.read_operations(call.body())

    def edit(draft: GroupDraft) -> None:
        for operation in operations:
            draft.apply(operation)

    return _change(call, edit)


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


def _change(call: ScimCall, edit: Callable[[GroupDraft], None]) -> Outbound:
    """Apply a change to the group in the path. One that depends on the members is repeated when another change
    overtakes it, unless If-Match names a version."""
    groups = _groups(call)
    for _ in range(ATTEMPTS):
        before = groups.find(call.organization_id, call.resource_id, False)
        is_bound = call.check_precondition(etag_of(before))
        draft, change = _edited(call, groups, before.id, edit)
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
    call: ScimCall, groups: ProvisionedGroups, group_id: str, edit: Callable[[GroupDraft], None]
) -> tuple[GroupDraft, GroupChange]:
    """Return the edited draft and its change. A long request is worked on in a thread, which must not read the store:
    the members are read before."""
    load: Callable[[], Sequence[str]] = partial(groups.members_of, group_id)
    if call.is_long():
        load = partial(tuple, load())
    draft = GroupDraft(load)

    def run() -> GroupChange:
        edit(draft)
        return draft.change()

    return draft, compute_if(call.is_long(), run)


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


def _lookup_of(query: list_queries.ScimQuery) -> GroupLookup:
    known = query.equalities()
    return GroupLookup(
        id=known.get("id", ""),
        name=known.get("displayname", ""),
        member_id=known.get("members.value", known.get("members", "")),
    )
