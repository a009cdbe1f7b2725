"""`/scim/v2/.search`: users and groups in one list."""

from msgspec.structs import replace

from gateway.surfaces.http import Outbound
from gateway.surfaces.scim import list_queries
from gateway.surfaces.scim.group_views import select_groups
from gateway.surfaces.scim.scim_call import ScimCall
from gateway.surfaces.scim.user_views import select_users


def search_all(call: ScimCall) -> Outbound:
    """List users and groups that fulfil a filter, the users first."""
    query = list_queries.read_query(call)
    user_count, users = select_users(call, query)
    rest = replace(query, start=max(1, query.start - user_count), count=query.count - len(users))
    group_count, groups = select_groups(call, rest)
    return list_queries.reply_list(call, query, user_count + group_count, [*users, *groups])
