"""`/connect`: the visitor's sessions, applications with access, password and second factor."""

from markupsafe import Markup

from gateway.clock import to_datetime
from gateway.errors import GatewayError
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.surfaces.console.pages import page, redirect
from gateway.surfaces.console.sign_in_pages import SIGN_OUT
from gateway.surfaces.console.visits import LOGIN, as_page, make_csrf, pressed, require_visitor, submitted_by_visitor
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.visitor import Visitor, write_cookie
from gateway.worker.services import Services

segno = LazyImport("segno")  # few ever enrol at a given worker
TITLE = "Your account"
PATH = "/connect"
FORM = "account"
FACTOR = "Second factor"
# What a browser's User-Agent has → what it is called. Those that pretend to be another come before it.
BROWSERS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "Firefox/": "Firefox",
    "Chrom": "Chrome",
    "CriOS/": "Chrome",
    "Safari/": "Safari",
}
SYSTEMS = {
    "Windows": "Windows",
    "Android": "Android",
    "iPhone": "iOS",
    "iPad": "iPadOS",
    "Mac OS X": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}


def show(services: Services, inbound: Inbound) -> Outbound:
    """Who is signed in, where, and whether with a second factor."""
    return _page(services, inbound, require_visitor(services, inbound, PATH))


def act(services: Services, inbound: Inbound) -> Outbound:
    """What the buttons of the page do."""
    visitor, given = submitted_by_visitor(services, inbound, PATH, lambda _: FORM)
    step = pressed(BUTTONS, given)
    try:
        return step(services, inbound, visitor, given)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, visitor, error)


def _end_all(services: Services, inbound: Inbound, visitor: Visitor, given: dict[str, str]) -> Outbound:
    services.management.sessions.close_others(visitor.user_id)
    return redirect(inbound, LOGIN, [write_cookie(inbound, "", 0)])


def _end_one(services: Services, inbound: Inbound, visitor: Visitor, given: dict[str, str]) -> Outbound:
    services.management.sessions.close_one(visitor.user_id, given.get("session", "")[:80])
    return redirect(inbound, PATH)


def _leave(services: Services, inbound: Inbound, visitor: Visitor, given: dict[str, str]) -> Outbound:
    grants = services.accounts.oauth.grants
    wanted = given.get("application", "")[:80]
    if wanted in {one.id for one in grants.list_grants(user_id=visitor.user_id)}:
        grants.end(wanted, "revoked", actor=visitor.user_id)
    return redirect(inbound, PATH)


def _begin(services: Services, inbound: Inbound, visitor: Visitor, given: dict[str, str]) -> Outbound:
    management = services.management
    session = visitor.session
    management.check_password(session.user_id, session.email, given.get("password", ""))
    made = management.second_factors.begin(session.user_id, session.email)
    csrf = make_csrf(services, visitor, FORM)
    drawing = Markup(compute(draw_code, made.uri))
    return page(inbound, "factor_begin.html", FACTOR, secret=made.secret, uri=made.uri, drawing=drawing, csrf=csrf)


def draw_code(uri: str) -> str:
    """The QR code of an address as an SVG element: it loads nothing, and its looks are attributes, so that it needs no
    exception from the page's policy. Takes some 50 ms."""
    drawn: str = segno.make_qr(uri, error="m").svg_inline(scale=4, light="#fff", svgclass=None, lineclass=None)
    return drawn


def _confirm(services: Services, inbound: Inbound, visitor: Visitor, given: dict[str, str]) -> Outbound:
    codes = services.management.confirm_second_factor(visitor.user_id, given.get("code", ""), visitor.session.id)
    return page(inbound, "factor_codes.html", FACTOR, codes="\n".join(codes))


def _remove(services: Services, inbound: Inbound, visitor: Visitor, given: dict[str, str]) -> Outbound:
    session = visitor.session
    password = given.get("password", "")
    code = given.get("code", "")
    services.management.remove_second_factor(session.user_id, session.email, password, code)
    return redirect(inbound, PATH)


def _change(services: Services, inbound: Inbound, visitor: Visitor, given: dict[str, str]) -> Outbound:
    session = visitor.session
    services.management.change_password(
        session.user_id, session.email, given.get("current", ""), given.get("chosen", ""), session.id
    )
    return page(inbound, "done.html", "Password", text="Your password is changed, and your other sessions have ended.")


def _day_and_time(at_us: int) -> str:
    return to_datetime(at_us).strftime("%d %B %Y, %H:%M UTC")


def _name_agent(agent: str) -> str:
    """Browser and system of a User-Agent, which is long and says little to a person; other programs as they say."""
    if not agent.startswith("Mozilla/"):
        return agent or "an unnamed program"
    browser = next((name for mark, name in BROWSERS.items() if mark in agent), "")
    system = next((name for mark, name in SYSTEMS.items() if mark in agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or agent


def _page(services: Services, inbound: Inbound, visitor: Visitor, error: GatewayError | None = None) -> Outbound:
    management = services.management
    own = visitor.session
    sessions = [
        {
            "id": one.id,
            "agent": _name_agent(one.agent),
            "since": _day_and_time(one.created_at_us),
            "current": one.id == own.id,
        }
        for one in management.sessions.list_sessions(visitor.user_id)
    ]
    applications = [
        {
            "id": one.id,
            "name": one.client_name,
            "key": one.key_name,
            "since": _day_and_time(one.created_at_us),
        }
        for one in services.accounts.oauth.grants.list_grants(user_id=visitor.user_id)
    ]
    return page(
        inbound,
        "account.html",
        TITLE,
        error=error,
        email=own.email,
        csrf=make_csrf(services, visitor, SIGN_OUT),
        own_csrf=make_csrf(services, visitor, FORM),
        sessions=sessions,
        applications=applications,
        factor=management.second_factors.find(visitor.user_id),
    )


BUTTONS = {
    "everywhere": _end_all,
    "end": _end_one,
    "change": _change,
    "begin": _begin,
    "confirm": _confirm,
    "remove": _remove,
    "leave": _leave,
}
OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(act), body="form"),
)
