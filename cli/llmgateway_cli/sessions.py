"""Storage of the sign-in: a bearer token (browser) or a cookie (email), bound to the service that issued it."""

from dataclasses import dataclass

from llmgateway_cli import settings as members
from llmgateway_cli.errors import CliError, SignedOut
from llmgateway_cli.settings import Settings

SIGN_IN = "Sign in with `llmgateway auth login`."
SERVICE_PREFIX = "llmgsa_"


@dataclass(frozen=True, slots=True)
class Session:
    """A sign-in: exactly one of `token` and `cookie` (`name=value`) is set. `email` is the name of a service account
    whose token it is."""

    api_url: str
    email: str
    token: str = ""
    cookie: str = ""

    @property
    def is_service_account(self) -> bool:
        """Return whether the token is that of a service account."""
        return self.token.startswith(SERVICE_PREFIX)

    def headers(self) -> dict[str, str]:
        """The headers that authenticate a management request."""
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        return {"Cookie": self.cookie}


def stored_session(settings: Settings) -> Session | None:
    """Return the stored session, None without one. It may belong to another service than the current one."""
    stored = settings.stored
    token = stored.get(members.SESSION_TOKEN, "")
    cookie = stored.get(members.SESSION_COOKIE, "")
    if not token and not cookie:
        return None
    email = stored.get(members.SESSION_EMAIL, "")
    api_url = stored.get(members.SESSION_API_URL, "")
    if token:
        return Session(api_url, email, token=token)
    return Session(api_url, email, cookie=cookie)


def current_session(settings: Settings) -> Session:
    """Return the service account of the environment, or the session of the current service. Raises SignedOut without
    one, CliError if it is another service's."""
    if settings.service_token:
        return service_session(settings, settings.service_token)
    session = stored_session(settings)
    if session is None:
        raise SignedOut("You are not signed in.", SIGN_IN)
    return checked_session(settings, session)


def is_service_account(settings: Settings) -> bool:
    """Return whether requests are those of a service account."""
    session = stored_session(settings)
    return bool(settings.service_token) or (session is not None and session.is_service_account)


def checked_session(settings: Settings, session: Session) -> Session:
    """Return a stored session. Raises CliError if it is another service's."""
    if session.api_url.rstrip("/") != settings.api_url:
        raise CliError(
            f"You are signed in at {session.api_url or 'an unknown service'}, not at {settings.api_url}.",
            f"Use that address, or sign in here with `llmgateway auth login --api-url {settings.api_url}`.",
        )
    return session


def service_session(settings: Settings, token: str) -> Session:
    """Return the session of a service account's token. Raises CliError for another token."""
    if not token.startswith(SERVICE_PREFIX) or not token.isascii() or not token.isprintable() or " " in token:
        raise CliError(
            f"This is not the token of a service account, which begins with {SERVICE_PREFIX}.",
            f"Copy it again, to {members.SERVICE_VARIABLE} or with `llmgateway auth login --service-account`.",
        )
    return Session(settings.api_url, "", token=token)


def store_session(settings: Settings, session: Session, urls: dict[str, str] | None = None) -> None:
    """Replace the stored session. Another account or service also removes the API key and the default organization
    and project, which belong to the former one. `urls` are base URLs to store with it."""
    former = stored_session(settings)
    changes: dict[str, str | None] = {
        members.SESSION_API_URL: session.api_url,
        members.SESSION_EMAIL: session.email,
        members.SESSION_TOKEN: session.token or None,
        members.SESSION_COOKIE: session.cookie or None,
        **(urls or {}),
    }
    if former and (former.api_url, former.email) != (session.api_url, session.email):
        changes |= dict.fromkeys((members.API_KEY, members.DEFAULT_ORGANIZATION, members.DEFAULT_PROJECT))
    settings.save(changes)


def forget_session(settings: Settings) -> None:
    """Remove the session, the API key and the defaults. The base URLs and the agents file stay."""
    removed = (
        members.API_KEY,
        members.SESSION_COOKIE,
        members.SESSION_TOKEN,
        members.SESSION_API_URL,
        members.SESSION_EMAIL,
        members.DEFAULT_ORGANIZATION,
        members.DEFAULT_PROJECT,
    )
    settings.save(dict.fromkeys(removed))
