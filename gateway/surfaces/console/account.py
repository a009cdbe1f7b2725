"""`/console/account`: the visitor's sessions, applications with access, password, passkeys and second factor."""

from typing import Any

from markupsafe import Markup

from gateway.accounts import identities
from gateway.accounts.members import find_user
from gateway.errors import GatewayError
from gateway.oauth.grant_values import GrantInfo
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.surfaces.console.kept_choices import COOKIE_S
from gateway.surfaces.console.pages import THEME_COOKIE, THEMES, page, redirect
from gateway.surfaces.console.sign_in_pages import SIGN_OUT, are_offered, browser_of
from gateway.surfaces.console.sso_pages import CONNECT
from gateway.surfaces.console.visits import LOGIN, as_page, make_csrf, pressed, require_visitor, submitted_by_visitor
from gateway.surfaces.visitors.visitor import Visitor, write_cookie
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

segno = LazyImport("segno")  # most workers never draw a QR code
TITLE = "Your account"
PATH = "/console/account"
FORM_NAME = "account"
FACTOR = "Second factor"
# Mark in a User-Agent → name of the browser. Edge and Opera come before Chrome, because they also send its mark.
BROWSERS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "Firefox/": "Firefox",
    "FxiOS/": "Firefox",
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
    """Show the account's sessions, applications, password form and second factor."""
    return _page(services, inbound, require_visitor(services, inbound, PATH))


def act(services: Services, inbound: Inbound) -> Outbound:
    """Run the action of the button that was pressed."""
    visitor, form = submitted_by_visitor(services, inbound, PATH, FORM_NAME)
    action = pressed(BUTTONS, form)
    try:
        return action(services, inbound, visitor, form)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, visitor, error)


def _set_theme(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    """Keep the chosen colours in a cookie of this browser."""
    theme = form.get("theme", "")
    known = theme in THEMES
    return redirect(
        inbound, PATH, [write_cookie(inbound, theme if known else "", COOKIE_S if known else 0, THEME_COOKIE)]
    )


def _sign_out_everywhere(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    services.management.sessions.close_others(visitor.user_id)
    return redirect(inbound, LOGIN, [write_cookie(inbound, "", 0)])


def _end_session(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    services.management.sessions.close_one(visitor.user_id, form.get("session", "")[:80])
    return redirect(inbound, PATH)


def _revoke_application(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    grants = services.accounts.oauth.grants
    grant_id = form.get("application", "")[:80]
    if grant_id in {grant.id for grant in _grants_of(services, visitor)}:
        grants.end(grant_id, "revoked", actor=visitor.user_id)
    return redirect(inbound, PATH)


def _grants_of(services: Services, visitor: Visitor) -> list[GrantInfo]:
    grants = services.accounts.oauth.grants
    return grants.list_grants(user_id=visitor.user_id, organization_ids=list(visitor.memberships))


def _begin_second_factor(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    management = services.management
    session = visitor.session
    management.check_password(session.user_id, session.email, form.get("password", ""))
    enrolment = management.second_factors.begin(session.user_id, session.email)
    qr_code = Markup(compute(draw_qr_code, enrolment.uri))
    return _setup_page(services, inbound, visitor, secret=enrolment.secret, uri=enrolment.uri, qr_code=qr_code)


def _setup_page(services: Services, inbound: Inbound, visitor: Visitor, **values: Any) -> Outbound:
    """Return the page with the field for the first code. It has the secret once: after a wrong code the app knows it
    already."""
    csrf = make_csrf(services, visitor, FORM_NAME)
    return page(inbound, "second_factor_setup.html", FACTOR, visitor=visitor, csrf=csrf, **{"secret": "", **values})


def draw_qr_code(uri: str) -> str:
    """Return the QR code of `uri` as an SVG element. Takes about 50 ms.

    The element loads nothing and has attributes instead of styles, because the content security policy forbids both.
    """
    svg: str = segno.make_qr(uri, error="m").svg_inline(scale=4, light="#fff", svgclass=None, lineclass=None)
    return svg


def _confirm_second_factor(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    try:
        codes = services.management.confirm_second_factor(visitor.user_id, form.get("code", ""), visitor.session.id)
    except GatewayError as error:
        if error.code != "second_factor_wrong":
            raise
        return _setup_page(services, inbound, visitor, error=error)
    return page(inbound, "recovery_codes.html", FACTOR, visitor=visitor, codes="\n".join(codes))


def _remove_second_factor(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    session = visitor.session
    password = form.get("password", "")
    code = form.get("code", "")
    services.management.remove_second_factor(session.user_id, session.email, password, code)
    return redirect(inbound, PATH)


def _disconnect(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    visitor.check_account_access()
    identities.unlink(services.store.database, visitor.user_id, form.get("identity", "")[:80])
    return redirect(inbound, PATH)


def _connections(services: Services, visitor: Visitor) -> dict[str, Any]:
    """Return the connected identities, and the providers that can be connected (id, name)."""
    linked = identities.list_identities(services.store.database, visitor.user_id)
    known = {identity.provider_id for identity in linked}
    providers = services.sso.service.providers
    own = [provider for name in visitor.memberships for provider in providers.list_providers(name) if provider.active]
    offered = [] if visitor.session.organization_id else [*providers.configured, *own]
    return {
        "identities": linked,
        "provider_names": {provider.id: provider.name for provider in [*providers.configured, *own]},
        "connectable": [(provider.id, provider.name) for provider in offered if provider.id not in known],
        "connect_csrf": make_csrf(services, visitor, CONNECT),
    }


def _add_passkey(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    visitor.check_account_access()
    browser = browser_of(inbound, visitor.session.id)
    credential = form.get("credential", "")
    services.management.passkeys.register(browser, visitor.user_id, credential, form.get("name", ""))
    return redirect(inbound, PATH)


def _rename_passkey(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    services.management.passkeys.rename(visitor.user_id, form.get("passkey", "")[:80], form.get("name", ""))
    return redirect(inbound, PATH)


def _remove_passkey(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    visitor.check_account_access()
    services.management.remove_passkey(visitor.user_id, form.get("passkey", "")[:80])
    return redirect(inbound, PATH)


def _enable_passkey_factor(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    visitor.check_account_access()
    session = visitor.session
    services.management.check_password(session.user_id, session.email, form.get("password", ""))
    codes = services.management.enable_passkey_factor(session.user_id, session.id)
    return page(inbound, "recovery_codes.html", FACTOR, visitor=visitor, codes="\n".join(codes))


def _change_password(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    session = visitor.session
    services.management.change_password(
        session.user_id, session.email, form.get("current", ""), form.get("chosen", ""), session.id
    )
    return page(
        inbound, "message.html", "Password", text="Your password was changed, and your other sessions were signed out."
    )


def _confirm_email(services: Services, inbound: Inbound, visitor: Visitor, form: dict[str, str]) -> Outbound:
    visitor.check_account_access()
    services.management.confirm_email(visitor.user_id, visitor.session.email)
    return redirect(inbound, PATH)


def name_agent(agent: str) -> str:
    """Return "Browser on system" for the User-Agent of a browser, and any other User-Agent unchanged."""
    if not agent.startswith("Mozilla/"):
        return agent or "Unknown client"
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
            "id": session.id,
            "agent": name_agent(session.agent),
            "since": session.created_at_us,
            "used": session.used_at_us or session.created_at_us,
            "current": session.id == own.id,
        }
        for session in management.sessions.list_sessions(visitor.user_id)
    ]
    applications = [
        {
            "id": grant.id,
            "name": grant.client_name,
            "key": grant.key_name,
            "host": grant.redirect_host,
            "scopes": ", ".join(grant.scopes),
            "since": grant.created_at_us,
            "used": grant.used_at_us,
        }
        for grant in _grants_of(services, visitor)
    ]
    return page(
        inbound,
        "account.html",
        TITLE,
        error=error,
        first_password=identities.lacks_credentials(services.store.database, visitor.user_id),
        form_redirects=True,  # connecting an identity leads to its provider
        visitor=visitor,
        email=own.email,
        confirmed=find_user(services.store.database, visitor.user_id).confirmed,
        csrf=make_csrf(services, visitor, SIGN_OUT),
        own_csrf=make_csrf(services, visitor, FORM_NAME),
        sessions=sessions,
        applications=applications,
        factor=management.second_factors.find(visitor.user_id),
        passkeys=management.passkeys.list_passkeys(visitor.user_id),
        passkeys_offered=are_offered(inbound),
        **_connections(services, visitor),
    )


BUTTONS = {
    "theme": _set_theme,
    "everywhere": _sign_out_everywhere,
    "end": _end_session,
    "change": _change_password,
    "begin": _begin_second_factor,
    "confirm": _confirm_second_factor,
    "remove": _remove_second_factor,
    "leave": _revoke_application,
    "add_passkey": _add_passkey,
    "rename_passkey": _rename_passkey,
    "remove_passkey": _remove_passkey,
    "passkey_factor": _enable_passkey_factor,
    "disconnect": _disconnect,
    "confirm_email": _confirm_email,
}
OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(act), body="form"),
)
