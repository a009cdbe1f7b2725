"""`/orgs/…/views`: saved views of Explore and of the list of requests; `/orgs/…/view-subscriptions`: views that are
sent each week, by mail to the person who subscribes or to an address for alerts."""

from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from msgspec import Meta

from gateway.accounts import saved_views, view_subscriptions
from gateway.accounts.alert_hooks import PAGERDUTY
from gateway.accounts.saved_views import EXPLORE, LOGS, MAX_NAME_LENGTH, MAX_QUERY_LENGTH, SavedView
from gateway.accounts.view_subscriptions import WEEKDAYS, ViewSubscription, read_schedule
from gateway.callers.throttle import ThrottleGate
from gateway.clock import to_iso
from gateway.errors import Forbidden, InvalidRequest
from gateway.surfaces.management.access_groups import in_part
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import (
    Body,
    OneOf,
    StrictBody,
    StrictBoolean,
    TextField,
    WholeNumber,
)
from gateway.surfaces.web.answer_structs import Answer, Time
from gateway.surfaces.web.http import Operation
from gateway.telemetry.weekly_views import NO_MAIL

TAG = "Views"
MEMBERS = in_part("usage:read")
SENDS = 20  # views that a person sends at once, an hour
HOUR_S = 3600
UNKEPT = ("page", "q")  # parameters of a page that a view does not keep
MONDAY_MORNING = ("monday", 8, "UTC")
QUERY_EXAMPLE = "measure=spend&groupBy=user"
QUERY = "The query of the page, such as measure=requests&groupBy=user&timeRange=30d."
SHARED = "Whether all members of the organization see it; each sees only what they may see."
WEEKDAY = "The day; default: monday."
HOUR = "The hour of the day, 0 to 23; default: 8."
ZONE = "The time zone of the hour, such as Europe/Berlin; default: UTC."


class ViewsQuery(Body):
    page = OneOf((EXPLORE, LOGS), load_default=EXPLORE, about="The page of the views; default: explore.")


class NewView(StrictBody):
    name = TextField(1, MAX_NAME_LENGTH, required=True, about="The name.")
    page = OneOf((EXPLORE, LOGS), load_default=EXPLORE, about="The page of the view; default: explore.")
    query = TextField(0, MAX_QUERY_LENGTH, load_default="", about=QUERY, example=QUERY_EXAMPLE)
    shared = StrictBoolean(SHARED, load_default=False)


class ViewChange(StrictBody):
    """Absent members stay unchanged."""

    name = TextField(1, MAX_NAME_LENGTH, about="The name.")
    query = TextField(0, MAX_QUERY_LENGTH, about=QUERY, example=QUERY_EXAMPLE)
    shared = StrictBoolean(SHARED)


class SubscriptionsQuery(Body):
    view = TextField(1, 40, data_key="viewId", about="Only subscriptions to this view.")


class NewSubscription(StrictBody):
    """Without `hookId`, the view is sent by mail to the person who subscribes."""

    viewId = TextField(1, 40, required=True, about="A view of Explore that you see.")
    hookId = TextField(1, 40, about="An address for alerts, such as a Slack channel; default: mail to yourself.")
    weekday = OneOf(WEEKDAYS, load_default=MONDAY_MORNING[0], about=WEEKDAY)
    hour = WholeNumber(0, view_subscriptions.LAST_HOUR, load_default=MONDAY_MORNING[1], about=HOUR)
    timezone = TextField(1, 64, load_default=MONDAY_MORNING[2], about=ZONE)


class SubscriptionChange(StrictBody):
    """Absent members stay unchanged."""

    weekday = OneOf(WEEKDAYS, about=WEEKDAY)
    hour = WholeNumber(0, view_subscriptions.LAST_HOUR, about=HOUR)
    timezone = TextField(1, 64, about=ZONE)


class ViewAnswer(Answer):
    """`own`: it is yours."""

    columns = ("id", "name", "page", "query", "shared", "own")
    id: str
    name: Annotated[str, Meta(examples=["Spend by person"])]
    page: str
    query: Annotated[str, Meta(examples=[QUERY_EXAMPLE])]
    shared: bool
    own: bool

    @classmethod
    def of_view(cls, view: SavedView, user_id: str) -> "ViewAnswer":
        return cls(view.id, view.name, view.page, view.query, view.shared, view.user_id == user_id)


class SubscriptionAnswer(Answer):
    """`hook_id` is null for mail to the person `user_id`. `sent_at` is when the view was sent last, null before;
    `problem` is why it was not sent or not delivered, null without one."""

    columns = ("id", "view_id", "user_id", "hook_id", "weekday", "hour", "timezone", "next_at", "sent_at", "problem")
    id: str
    view_id: str
    user_id: str
    hook_id: str | None
    weekday: str
    hour: int
    timezone: str
    next_at: Time
    sent_at: Time | None
    problem: str | None

    @classmethod
    def of_subscription(cls, subscription: ViewSubscription) -> "SubscriptionAnswer":
        schedule = subscription.schedule
        return cls(
            subscription.id,
            subscription.view_id,
            subscription.user_id,
            subscription.hook_id or None,
            WEEKDAYS[schedule.weekday],
            schedule.hour,
            schedule.timezone,
            to_iso(subscription.next_at_us),
            to_iso(subscription.sent_at_us) if subscription.sent_at_us else None,
            subscription.problem or None,
        )


def _person(call: ManagedCall[str]) -> str:
    """Return the id of the person whose views these are: the visitor, or for the operator the oldest owner."""
    return call.visitor.memberships[call.subject].user_id


def _manages(call: ManagedCall[str]) -> bool:
    return call.visitor.manages("organization:write", call.subject)


def _keep_query(text: str) -> str:
    """Return the query that a view keeps. InvalidRequest."""
    try:
        pairs = parse_qsl(text.removeprefix("?"), strict_parsing=bool(text.removeprefix("?")))
    except ValueError:
        raise InvalidRequest("The query has the form name=value&name=value.", param="query") from None
    return urlencode([(name, value) for name, value in pairs if name not in UNKEPT])


def _find_view(call: ManagedCall[str], view_id: str) -> SavedView:
    return saved_views.find(call.database, view_id, [call.subject], _person(call))


def _find_changed(call: ManagedCall[str], managed_too: bool) -> SavedView:
    """Return the view that the path names, if the visitor may change it. Raises NotFound, Forbidden."""
    view = _find_view(call, call.params["view_id"])
    if view.user_id != _person(call) and not (managed_too and _manages(call)):
        others = ", owners and admins" if managed_too else ""
        raise Forbidden(f"Only the person who saved a view{others} may change it.")
    call.visitor.member(call.subject)
    return view


def list_views(call: ManagedCall[str]) -> list[ViewAnswer]:
    """Your views, and those that others shared with the organization."""
    person = _person(call)
    listed = saved_views.list_views(call.database, [call.subject], person, call.fields["page"])
    return [ViewAnswer.of_view(view, person) for view in listed]


def create_view(call: ManagedCall[str]) -> ViewAnswer:
    """Save a view: a name for the query of a page. It keeps no data: each person sees in it only what they may see."""
    call.visitor.member(call.subject)
    fields, person = call.fields, _person(call)
    view = saved_views.add(
        call.database,
        call.subject,
        person,
        fields["name"],
        _keep_query(fields["query"]),
        fields["shared"],
        fields["page"],
        actor=call.actor,
    )
    return ViewAnswer.of_view(view, person)


def change_view(call: ManagedCall[str]) -> ViewAnswer:
    """Change the name, the query or who sees a view of yours."""
    view = _find_changed(call, False)
    changes: dict[str, Any] = dict(call.fields)
    if "query" in changes:
        changes["query"] = _keep_query(changes["query"])
    return ViewAnswer.of_view(saved_views.change(call.database, view, changes, actor=call.actor), _person(call))


def delete_view(call: ManagedCall[str]) -> None:
    """Its address shows nothing any more, and it is sent to nobody. Owners and admins delete shared views of others
    too."""
    saved_views.remove(call.database, _find_changed(call, True), actor=call.actor)


def list_subscriptions(call: ManagedCall[str]) -> list[SubscriptionAnswer]:
    """Your subscriptions; for owners and admins those of all members."""
    person = "" if _manages(call) else _person(call)
    listed = view_subscriptions.list_subscriptions(call.database, call.subject, person, call.fields.get("view", ""))
    return [SubscriptionAnswer.of_subscription(one) for one in listed]


def subscribe(call: ManagedCall[str]) -> SubscriptionAnswer:
    """Let a view of Explore be sent each week: the sums of the last seven complete days, their change, and a link. It
    shows what you may see. Only those who may change the addresses for alerts send one there."""
    call.visitor.member(call.subject)
    fields = call.fields
    view = _find_view(call, fields["viewId"])
    hook_id = fields.get("hookId", "")
    if hook_id:
        call.visitor.permitted(call.subject, "alerts:write")
        if call.services.telemetry.hooks.find(call.subject, hook_id).form == PAGERDUTY:
            raise InvalidRequest("PagerDuty takes incidents; choose another address.", param="hookId")
    elif not call.services.telemetry.weekly_views.mails:
        raise InvalidRequest(NO_MAIL)
    schedule = read_schedule(fields["weekday"], fields["hour"], fields["timezone"])
    made = view_subscriptions.add(call.database, view, _person(call), hook_id, schedule, call.actor)
    return SubscriptionAnswer.of_subscription(made)


def _find_subscription(call: ManagedCall[str]) -> ViewSubscription:
    """Return the subscription that the path names: the visitor's own, or any for owners and admins. Raises
    NotFound, Forbidden."""
    subscription = view_subscriptions.find(call.database, call.params["subscription_id"], [call.subject])
    if subscription.user_id != _person(call) and not _manages(call):
        raise Forbidden("Only the person who subscribed, owners and admins may change a subscription.")
    call.visitor.member(call.subject)
    return subscription


def reschedule(call: ManagedCall[str]) -> SubscriptionAnswer:
    """Change the day, the hour or the time zone."""
    subscription = _find_subscription(call)
    known = subscription.schedule
    fields = {"weekday": WEEKDAYS[known.weekday], "hour": known.hour, "timezone": known.timezone, **call.fields}
    schedule = read_schedule(fields["weekday"], fields["hour"], fields["timezone"])
    return SubscriptionAnswer.of_subscription(
        view_subscriptions.reschedule(call.database, subscription, schedule, call.actor)
    )


def unsubscribe(call: ManagedCall[str]) -> None:
    """The view is not sent there any more."""
    view_subscriptions.remove(call.database, _find_subscription(call), call.actor)


def send(call: ManagedCall[str]) -> None:
    """Send the view within a minute, in addition to its usual days."""
    subscription = _find_subscription(call)
    call.management.throttle.take(ThrottleGate("views sent", call.visitor.user_id, SENDS, HOUR_S))
    view_subscriptions.request_now(call.database, subscription, call.actor)


VIEWS = "/orgs/<organization_id>/views"
VIEW = f"{VIEWS}/<view_id>"
SUBSCRIPTIONS = "/orgs/<organization_id>/view-subscriptions"
SUBSCRIPTION = f"{SUBSCRIPTIONS}/<subscription_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", VIEWS, list_views, "List saved views", tag=TAG, who=MEMBERS, query=ViewsQuery,
            inside="views", commands=("views list --page=page",)),
    managed("POST", VIEWS, create_view, "Save a view", tag=TAG, who=MEMBERS, request=NewView,
            inside="view", success=201, audit="view.create",
            commands=("views create <name> --query=query --page=page --shared=shared -> id",)),
    managed("PATCH", VIEW, change_view, "Change a view", tag=TAG, who=MEMBERS, request=ViewChange,
            inside="view", audit="view.update", commands=("views update <view_id> ...",)),
    managed("DELETE", VIEW, delete_view, "Delete a view", tag=TAG, who=MEMBERS, message="View deleted.",
            audit="view.delete", commands=("views delete <view_id>",)),
    managed("GET", SUBSCRIPTIONS, list_subscriptions, "List subscriptions to views", tag=TAG, who=MEMBERS,
            query=SubscriptionsQuery, inside="subscriptions", commands=("views subscriptions --view=viewId",)),
    managed("POST", SUBSCRIPTIONS, subscribe, "Send a view each week", tag=TAG, who=MEMBERS,
            request=NewSubscription, inside="subscription", success=201, audit="view.subscribe",
            commands=("views subscribe <viewId> --to=hookId --weekday=weekday --hour=hour --timezone=timezone -> id",)),
    managed("PATCH", SUBSCRIPTION, reschedule, "Change when a view is sent", tag=TAG, who=MEMBERS,
            request=SubscriptionChange, inside="subscription", audit="view.reschedule",
            commands=("views reschedule <subscription_id> ...",)),
    managed("DELETE", SUBSCRIPTION, unsubscribe, "End a subscription to a view", tag=TAG, who=MEMBERS,
            message="Subscription ended.", audit="view.unsubscribe",
            commands=("views unsubscribe <subscription_id>",)),
    managed("POST", f"{SUBSCRIPTION}/send", send, "Send a view now", tag=TAG, who=MEMBERS,
            message="The view is sent within a minute.", audit="view.send", commands=("views send <subscription_id>",)),
)  # fmt: skip
