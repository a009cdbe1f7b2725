"""The command `auth`: sign in, sign out, the account."""

from typing import Any

import click

from llmgateway_cli import account_lists, browser_sign_in
from llmgateway_cli.api_keys import store_checked_key
from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError, HttpError, SignedOut
from llmgateway_cli.sessions import (
    SIGN_IN,
    Session,
    checked_session,
    forget_session,
    service_session,
    store_session,
    stored_session,
)
from llmgateway_cli.settings import (
    API_URL,
    DASHBOARD_URL,
    DEFAULT_ORGANIZATION,
    DEFAULT_PROJECT,
    GATEWAY_URL,
    KEY_VARIABLE,
    SERVICE_VARIABLE,
)
from llmgateway_cli.shapes import list_of, object_of, text_of

PASSWORD_VARIABLE = "LLMGATEWAY_PASSWORD"
KEY_PAGE = "/dashboard/api-keys"
SECOND_FACTOR = "second_factor_required"
SIGN_OUT_TIMEOUT_S = 10.0


@click.group(cls=ClientGroup)
def auth() -> None:
    """Sign in and out, and show the account."""


@auth.command("login")
@click.option("--email", is_flag=False, flag_value="", metavar="[ADDRESS]", help="Sign in with email and password.")
@click.option(
    "--key", is_flag=False, flag_value="", metavar="[KEY]", help="Store an API key instead of signing in; asked for."
)
@click.option("--service-account", "as_service", is_flag=True, help="Store the token of a service account.")
@click.option("--sso", is_flag=False, flag_value="", metavar="[ADDRESS]", help="Open the single sign-on page.")
@click.option("--no-browser", is_flag=True, help="Print the address and the code only.")
@click.option(
    "--timeout", "timeout_s", type=IntegerOption(), default=600, help="Seconds to wait for the browser (default: 600)."
)
@click.option("--org", metavar="ID", help="An organization's id or name, to make it the default one.")
@click.option("--api-url", metavar="URL", help="URL of the management API, stored.")
@click.option("--dashboard-url", metavar="URL", help="URL of the console, stored.")
@click.option("--gateway-url", metavar="URL", help="URL of the model API, stored.")
@json_option
@pass_context
def login(
    context: ClientContext,
    email: str | None,
    key: str | None,
    as_service: bool,
    sso: str | None,
    no_browser: bool,
    timeout_s: int,
    org: str | None,
    api_url: str | None,
    dashboard_url: str | None,
    gateway_url: str | None,
) -> None:
    """Sign in with the browser, with email and password, or store an API key or the token of a service account."""
    if (email is not None) + (key is not None) + as_service + (sso is not None or no_browser) > 1:
        raise click.UsageError("The browser, --email, --key and --service-account exclude each other.")
    if not 1 <= timeout_s <= 1800:
        raise CliError(f"--timeout {timeout_s} is out of range.", "Give 1 to 1800 seconds.")
    flags = {API_URL: api_url, DASHBOARD_URL: dashboard_url, GATEWAY_URL: gateway_url}
    context.settings.flags |= {member: url for member, url in flags.items() if url}
    urls = {member: context.settings.base_url(member) for member in context.settings.flags}
    if key is not None:
        _store_key(context, key, urls)
        return
    if as_service:
        session = _read_service_token(context)
    elif email is not None:
        session = _sign_in_by_password(context, email)
    else:
        session = browser_sign_in.sign_in(context, browser_sign_in.PageOptions(no_browser, timeout_s, sso))
    store_session(context.settings, session, urls)
    context.output.success(f"Signed in as {session.email} at {session.api_url}.")
    if org:
        listed = context.client.management("GET", "/orgs", session=session)
        organization = account_lists.find_organization(list_of(listed, "organizations"), org)
        ident = text_of(organization, "id")
        if ident != context.settings.default_organization:
            # A default project of another organization would decide where keys are made.
            context.settings.save({DEFAULT_ORGANIZATION: ident, DEFAULT_PROJECT: None})
        context.output.info(f"The default organization is {organization.get('name')}.")
    if context.output.as_json:
        context.output.document({"email": session.email, "apiUrl": session.api_url})


def _store_key(context: ClientContext, key: str, urls: dict[str, str]) -> None:
    """Store an API key: the given one, or that of a prompt, of the variable, or of standard input."""
    context.output.hide(key)
    if not key:
        page = context.settings.dashboard_url + KEY_PAGE
        context.output.info(f"Your API keys are at {page}")
        if context.output.is_interactive():
            browser_sign_in.open_page(context, page)
        key = context.output.secret("API key:", KEY_VARIABLE, ask_first=True).strip()
    if not key:
        raise CliError("No API key was given.", f"Type it, send it to standard input, or set {KEY_VARIABLE}.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise CliError("This is not an API key: it contains characters that no key has.", "Copy it again.")
    store_checked_key(context, key, urls)
    if context.output.as_json:
        context.output.document({"apiKey": masked(key)})


def _read_service_token(context: ClientContext) -> Session:
    """Return the session of a service account's token, which comes from a prompt, a variable or standard input."""
    token = context.output.secret("Token of the service account:", SERVICE_VARIABLE, ask_first=True).strip()
    session = service_session(context.settings, token)
    account = object_of(context.client.management("GET", "/auth/get-session", session=session), "serviceAccount")
    return Session(session.api_url, text_of(account, "name"), token=token)


def _sign_in_by_password(context: ClientContext, email: str) -> Session:
    """Return the session of an address and its password, and of a code if the account has a second factor."""
    if not email:
        email = context.output.ask("Email:", "--email ADDRESS")
    password = context.output.secret("Password:", PASSWORD_VARIABLE)
    if not password:
        raise CliError("No password was given.", f"Type it, send it to standard input, or set {PASSWORD_VARIABLE}.")
    body = {"email": email, "password": password}
    try:
        signed_in = context.client.sign_in_by_password(body)
    except HttpError as error:
        if error.code != SECOND_FACTOR:
            raise
        body["code"] = context.output.secret("Code of the second factor:").strip()
        signed_in = context.client.sign_in_by_password(body)
    context.output.hide(signed_in.cookie.partition("=")[2])
    return signed_in


@auth.command("status")
@json_option
@pass_context
def status(context: ClientContext) -> None:
    """Show the session, the API key and the addresses."""
    settings = context.settings
    user, reason = _user_and_reason(context)
    account = (user or {}).get("serviceAccount")
    key = settings.api_key
    source = settings.api_key_source
    if context.output.as_json:
        context.output.document(
            {
                "signedIn": user is not None,
                "email": (user or {}).get("email"),
                **{name: value for name, value in (user or {}).items() if name == "serviceAccount"},
                "apiKey": masked(key) or None,
                "apiKeySource": source or None,
                "apiUrl": settings.api_url,
                "dashboardUrl": settings.dashboard_url,
                "gatewayUrl": settings.gateway_url,
            }
        )
        return
    session = reason
    if account is not None:
        session = f"service account {account['name']} with the scopes {', '.join(map(str, account['scopes']))}"
    elif user is not None:
        session = f"signed in as {user['email']}"
    shown = "not set"
    if key:
        shown = f"{masked(key)} ({source})"
    context.output.fields(
        (
            ("Session", session),
            ("API key", shown),
            ("Management", settings.api_url),
            ("Web pages", settings.dashboard_url),
            ("Models", settings.gateway_url),
        )
    )
    if user is None:
        context.output.info(SIGN_IN)
    if not key:
        context.output.info("Store an API key with `llmgateway auth login --key`.")


def _user_and_reason(context: ClientContext) -> tuple[dict[str, Any] | None, str]:
    """Return the signed-in user, or None and the reason."""
    try:
        return current_user(context), ""
    except SignedOut as error:
        return None, error.message.rstrip(".").lower()


def current_user(context: ClientContext) -> dict[str, Any]:
    """Return the user of the session, or `{"serviceAccount": {…}}`. Raises SignedOut without a valid one."""
    answer = context.client.management("GET", "/auth/get-session")
    if answer is None:
        raise SignedOut("Your session has expired or was ended.", SIGN_IN)
    if isinstance(answer, dict) and "serviceAccount" in answer:
        text_of(object_of(answer, "serviceAccount"), "name")
        return answer
    user = object_of(answer, "user")
    text_of(user, "email")
    return user


@auth.command("whoami")
@json_option
@pass_context
def whoami(context: ClientContext) -> None:
    """Show the signed-in user or service account."""
    user = current_user(context)
    if "serviceAccount" in user:
        _show_service_account(context, user)
        return
    if context.output.as_json:
        context.output.document({"email": user["email"], "name": user.get("name")})
        return
    line = str(user["email"])
    if user.get("name"):
        line = f"{user['name']} <{user['email']}>"
    context.output.data(line)


def _show_service_account(context: ClientContext, answer: dict[str, Any]) -> None:
    if context.output.as_json:
        context.output.document(answer)
        return
    account = answer["serviceAccount"]
    context.output.data(f"{account['name']} ({account.get('id')}), service account of {account.get('organizationId')}")


@auth.command("logout")
@pass_context
def logout(context: ClientContext) -> None:
    """End the session, and remove it and the API key from this computer. The token of a service account stays valid."""
    session = stored_session(context.settings)
    if session is not None and not session.is_service_account:
        try:
            session = checked_session(context.settings, session)
            context.client.management("POST", "/auth/sign-out", body={}, session=session, timeout_s=SIGN_OUT_TIMEOUT_S)
        except CliError as error:
            context.output.warning(f"The session was not ended at the service: {error.message}")
    forget_session(context.settings)
    context.output.success("Signed out. Addresses and your own agents were kept.")


def masked(key: str) -> str:
    """Return the beginning and the end of a key; nothing of a short one."""
    if len(key) < 16:
        return "*" * len(key)
    return f"{key[:4]}****{key[-4:]}"
