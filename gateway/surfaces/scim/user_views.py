"""`/scim/v2/Users`: the members of the organization."""

from collections.abc import Callable
from functools import partial

from gateway.accounts.members import load_members
from gateway.accounts.provisioning.provisioned_users import ProvisionedUsers
from gateway.accounts.provisioning.provisioning_client import StaleVersion
from gateway.accounts.provisioning.user_rows import ProvisionedUser, UserLookup, UserValues
from gateway.admin.erasure import erasing
from gateway.errors import Conflict
from gateway.runtime.threads import compute_if
from gateway.surfaces.http import Outbound
from gateway.surfaces.scim import list_queries, patches
from gateway.surfaces.scim.attributes import USERS
from gateway.surfaces.scim.resources import document_of, etag_of, project, show_user, values_of
from gateway.surfaces.scim.scim_call import ScimCall

ATTEMPTS = 5  # of a change without If-Match that another change overtakes


def list_users(call: ScimCall) -> Outbound:
    """List the users, all or those that fulfil a filter."""
    query = list_queries.read_query(call)
    return list_queries.reply_list(call, query, *select_users(call, query))


def select_users(call: ScimCall, query: list_queries.ScimQuery) -> tuple[int, list[list_queries.Json]]:
    """Return how many users fulfil a query, and those of the page."""
    users = _users(call)
    show = partial(show_user, base_url=call.base_url)
    with call.services.background.reports.turn(call.organization_id):
        if query.node is None:
            total, page = users.page(call.organization_id, UserLookup(), query.start - 1, query.count)
        else:
            pieces = users.scan(call.organization_id, _lookup_of(query))
            total, page = list_queries.select(USERS, query, pieces, show)
    return total, [project(USERS, show(user), query.attributes, query.excluded) for user in page]


def find_user(call: ScimCall) -> Outbound:
    """Return one user."""
    return _reply(call, _users(call).find(call.organization_id, call.resource_id))


def create_user(call: ScimCall) -> Outbound:
    """Create a user: a member of the organization without a password. A member that no identity provider manages yet is
    taken over."""
    body = call.body()
    document: patches.Document = {"active": True}
    patches.assign(USERS, document, body)
    return _reply(call, _users(call).create(call.client, values_of(document)), 201)


def replace_user(call: ScimCall) -> Outbound:
    """Replace the attributes of a user. A user without `active` stays as before."""
    body = call.body()

    def change(before: ProvisionedUser) -> UserValues:
        document: patches.Document = {"active": before.active}
        patches.assign(USERS, document, body)
        return values_of(document)

    return _change(call, change)


def patch_user(call: ScimCall) -> Outbound:
    """Change attributes of a user. A user with `active` false loses access everywhere before the response."""
    operations = compute_if(call.is_long(), patches.read_operations, call.body())

    def change(before: ProvisionedUser) -> UserValues:
        document = document_of(before)
        for operation in operations:
            patches.apply(USERS, document, operation)
        return values_of(document)

    return _change(call, change)


def delete_user(call: ScimCall) -> Outbound:
    """Remove a user from the organization and revoke the user's API keys. The account and its other memberships stay;
    with `retention.erase_removed`, the personal data in this organization are erased."""
    users = _users(call)
    version = ""
    if call.inbound.header("if-match"):
        user = users.find(call.organization_id, call.resource_id)
        call.check_precondition(etag_of(user))
        version = user.version
    database = call.services.store.database

    def erase(removed: ProvisionedUser, now: int) -> None:
        [member] = load_members([call.resource_id])
        words = (removed.user_name, removed.external_id, removed.email, removed.account_email, removed.account_name)
        erasing(database, member, actor=call.client.actor, words=words)(now)

    erases = call.services.settings.retention.erase_removed
    users.delete(call.client, call.resource_id, version, erase if erases else None)
    return call.reply(None, 204)


def _change(call: ScimCall, change: Callable[[ProvisionedUser], UserValues]) -> Outbound:
    """Apply a change to the user in the path. Without If-Match it is repeated when another change overtakes it."""
    users = _users(call)
    for _ in range(ATTEMPTS):
        before = users.find(call.organization_id, call.resource_id)
        is_bound = call.check_precondition(etag_of(before))
        stated = compute_if(call.is_long(), change, before)
        try:
            return _reply(call, users.update(call.client, before, stated))
        except StaleVersion:
            if is_bound:
                raise
    raise Conflict("The user is changed by too many requests at the same time; try again.")


def _reply(call: ScimCall, user: ProvisionedUser, status: int = 200) -> Outbound:
    given = call.selection()
    shown = show_user(user, call.base_url)
    location = shown["meta"]["location"] if status == 201 else ""
    shown = project(USERS, shown, given.get("attributes", ""), given.get("excludedAttributes", ""))
    return call.reply(shown, status, etag_of(user), location)


def _users(call: ScimCall) -> ProvisionedUsers:
    return call.services.management.provisioned_users


def _lookup_of(query: list_queries.ScimQuery) -> UserLookup:
    known = query.equalities()
    return UserLookup(
        id=known.get("id", ""),
        user_name=known.get("username", ""),
        external_id=known.get("externalid", ""),
    )
