"""The surface of the console: the operations of all its pages."""

from gateway.surfaces.console import (
    account,
    agent_session_pages,
    alert_pages,
    assets,
    authorize,
    guardrail_pages,
    guide_pages,
    invitation,
    lost_password,
    old_addresses,
    overview,
    reference_page,
    sign_in_pages,
)
from gateway.surfaces.console.audit_log import audit_pages
from gateway.surfaces.console.automation import automation_pages
from gateway.surfaces.console.budgets import budget_pages
from gateway.surfaces.console.first_run import first_run_pages
from gateway.surfaces.console.keys import key_pages
from gateway.surfaces.console.models import custom_model_pages, model_pages
from gateway.surfaces.console.people import people_pages
from gateway.surfaces.console.playground import playground_pages
from gateway.surfaces.console.projects import project_pages
from gateway.surfaces.console.providers import provider_key_pages, provider_pages
from gateway.surfaces.console.requests import request_pages
from gateway.surfaces.console.routing import routing_pages
from gateway.surfaces.console.settings import settings_pages
from gateway.surfaces.console.setup import setup_pages
from gateway.surfaces.console.single_sign_on import sso_pages, sso_settings_pages
from gateway.surfaces.console.teams import team_pages
from gateway.surfaces.console.usage import usage_pages
from gateway.surfaces.visitors.visitor import MANAGEMENT
from gateway.surfaces.web.http import Surface

SURFACE = Surface(
    "console",
    MANAGEMENT,
    (
        *account.OPERATIONS,
        *agent_session_pages.OPERATIONS,
        *alert_pages.OPERATIONS,
        *assets.OPERATIONS,
        *audit_pages.OPERATIONS,
        *automation_pages.OPERATIONS,
        *authorize.OPERATIONS,
        *authorize.DEVICE_OPERATIONS,
        *first_run_pages.OPERATIONS,
        *guardrail_pages.OPERATIONS,
        *guide_pages.OPERATIONS,
        *reference_page.OPERATIONS,
        *invitation.OPERATIONS,
        *key_pages.OPERATIONS,
        *request_pages.OPERATIONS,
        *lost_password.OPERATIONS,
        *custom_model_pages.OPERATIONS,
        *provider_key_pages.OPERATIONS,
        *provider_pages.OPERATIONS,
        *model_pages.OPERATIONS,
        *sign_in_pages.PASSKEY_OPERATIONS,
        *people_pages.OPERATIONS,
        *playground_pages.OPERATIONS,
        *project_pages.OPERATIONS,
        *routing_pages.OPERATIONS,
        *settings_pages.OPERATIONS,
        *setup_pages.OPERATIONS,
        *sign_in_pages.OPERATIONS,
        *sso_pages.OPERATIONS,
        *sso_settings_pages.OPERATIONS,
        *budget_pages.OPERATIONS,
        *team_pages.OPERATIONS,
        *usage_pages.OPERATIONS,
        *old_addresses.OPERATIONS,
        *overview.OPERATIONS,
        *old_addresses.UNKNOWN_OPERATIONS,
    ),
    described=False,
)
