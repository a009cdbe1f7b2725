"""Changes that touch several packages at once, each in one transaction."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from gateway import ids, money
from gateway.accounts import keys, members, organizations, projects
from gateway.accounts.changes import OPERATOR, commit
from gateway.accounts.passwords import MAX_LENGTH, MIN_LENGTH, Passwords
from gateway.admin.default_limits import insert_default_limits
from gateway.callers import tokens as tokens_module
from gateway.configuration.file import SettingsError
from gateway.configuration.settings import Settings
from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

# (organization id, nano-dollars or None for unlimited, reference that makes the grant happen once); called within the
# transaction.
Grant = Callable[[str, int | None, str], None]
UNLIMITED = "unlimited"

FIRST_NAME = "Default"
KEY_NAME = "GATEWAY_BOOTSTRAP_API_KEY"
PASSWORD_NAME = "GATEWAY_BOOTSTRAP_PASSWORD"
EMAIL_NAME = "GATEWAY_BOOTSTRAP_EMAIL"


class FirstKey(Struct, frozen=True):
    """The installation's first usable key after a start.

    `key` is None when no active user key is left. `token` is given on the very first start only, and not when the
    operator brought it along. `created` tells a first start; `granted_nusd` what was credited then, None: unlimited.
    `stranger` is true when the environment names a key that this installation does not know.
    """

    key: keys.KeyInfo | None
    token: str = ""
    created: bool = False
    granted_nusd: int | None = 0
    stranger: bool = False


class _Plan(Struct, frozen=True):
    """The rows of a first start, prepared outside of the transaction so that the transaction can be repeated."""

    token: str
    email: str
    password_hash: str
    credits_nusd: int | None
    organization_id: str
    project_id: str
    project: Mapping[str, Any]
    limits: tuple[str, ...]
    member_ids: tuple[str, str]
    key_id: str


def check_first_start(settings: Settings) -> None:
    """Check the settings of a first start. Raises SettingsError, which lists every invalid setting on a line."""
    problems = []
    for read in (_read_key, _read_email, _read_password, _read_credits):
        try:
            read(settings)
        except InvalidRequest as error:
            problems.append(error.message)
    if problems:
        raise SettingsError("\n".join(problems))


class Administration:
    """Changes of organizations as a whole."""

    def __init__(self, database: Database, control: Control, secrets: Secrets, passwords: Passwords) -> None:
        self._database = database
        self._control = control
        self._hash_keys = secrets.hash_keys
        self._passwords = passwords

    def bootstrap(self, settings: Settings, grant: Grant | None = None) -> FirstKey:
        """Create the first organization, project, owner and key, once; later starts find the oldest active key.

        Safe to run from several processes at once. `grant` credits the organization in the same transaction.
        InvalidRequest names the setting that cannot be used.
        """
        if organizations.list_organizations(self._database):
            return self._existing(settings)
        plan = self._plan(settings)
        first_key = commit(self._database, self._control, lambda now: self._make(plan, grant, now), confirm=False)
        return first_key or self._existing(settings)

    def _existing(self, settings: Settings) -> FirstKey:
        active = [key for key in keys.list_keys(self._database) if key.state == "active" and key.kind == "user"]
        brought = settings.secret(KEY_NAME)
        stranger = bool(brought) and not keys.knows(self._database, self._hash_keys, brought)
        return FirstKey(active[0] if active else None, stranger=stranger)

    def _plan(self, settings: Settings) -> _Plan:
        password = _read_password(settings)
        return _Plan(
            token=_read_key(settings),
            email=_read_email(settings),
            password_hash=self._passwords.hash(password) if password else "",
            credits_nusd=_read_credits(settings),
            organization_id=ids.new("org"),
            project_id=ids.new("proj"),
            project=projects.first_values(FIRST_NAME, settings.organizations),
            limits=settings.organizations.limits,
            member_ids=(ids.new("member"), ids.new("user")),
            key_id=ids.new("key"),
        )

    def _make(self, plan: _Plan, grant: Grant | None, now: int) -> FirstKey | None:
        """Create the first organization and its objects. Return None if another process was faster."""
        if organizations.any_organization():
            return None
        organization_id = plan.organization_id
        organizations.insert_organization(organization_id, FIRST_NAME, actor=OPERATOR, now=now)
        projects.insert_project(plan.project_id, organization_id, plan.project, actor=OPERATOR, now=now)
        member = members.insert_member(
            plan.member_ids,
            organization_id,
            plan.email,
            "owner",
            name="",
            password_hash=plan.password_hash,
            actor=OPERATOR,
            now=now,
        )
        insert_default_limits(self._database, self._control, organization_id, plan.limits, now)
        draft = keys.Draft(plan.project_id, member.id, "First key")
        token = plan.token or tokens_module.make("user")
        key = keys.insert(
            self._hash_keys, draft, plan.key_id, token, description=draft.description, actor=OPERATOR, now=now
        )
        granted = plan.credits_nusd if grant is not None else 0
        if grant is not None and granted != 0:
            grant(organization_id, granted, f"bootstrap:{organization_id}")
        return FirstKey(key.info, "" if plan.token else token, created=True, granted_nusd=granted)


def _read_key(settings: Settings) -> str:
    brought = settings.secret(KEY_NAME)
    if brought and not tokens_module.well_formed(brought):
        raise InvalidRequest(f"{KEY_NAME} needs 8 to 256 visible characters without spaces.")
    return brought


def _read_email(settings: Settings) -> str:
    try:
        return members.read_email(settings.bootstrap.email)
    except InvalidRequest as error:
        raise InvalidRequest(f"{EMAIL_NAME}: {error.message}") from None


def _read_password(settings: Settings) -> str:
    password = settings.secret(PASSWORD_NAME)
    if password and not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise InvalidRequest(f"{PASSWORD_NAME}: a password needs {MIN_LENGTH} to {MAX_LENGTH} characters.")
    return password


def _read_credits(settings: Settings) -> int | None:
    text = settings.bootstrap.credits_usd
    if text.strip().lower() == UNLIMITED:
        return None
    try:
        amount = money.parse_usd(text or "0")
    except ValueError:
        amount = -1
    if amount < 0:
        raise InvalidRequest(f"GATEWAY_BOOTSTRAP_CREDITS_USD is neither an amount in USD nor {UNLIMITED}: {text!r}.")
    return amount
