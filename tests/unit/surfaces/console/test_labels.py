"""The console has a label for each value that the gateway gives it."""

from collections.abc import Iterable
from typing import get_args

import pytest

from gateway.accounts import alert_hooks, projects
from gateway.callers import permissions as permissions_module
from gateway.callers import scopes as scopes_module
from gateway.callers.credential_sources import PROJECT_MODES
from gateway.configuration.settings import ProjectMode
from gateway.neutral.request import STRATEGIES
from gateway.routing import candidate_filter, record
from gateway.routing.score import Weights
from gateway.surfaces.console import (
    alert_pages,
    authorize,
    limit_forms,
    people_pages,
    project_pages,
    routing_pages,
)
from gateway.surfaces.management import rule_routes


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        (routing_pages.STAGES, candidate_filter.STAGES),
        (routing_pages.STRATEGIES, STRATEGIES),
        (dict(project_pages.STRATEGIES), STRATEGIES),
        (routing_pages.WEIGHTS, Weights._fields),
        (routing_pages.REASONS, record.REASONS),
        (dict(project_pages.MARKERS), projects.MARKERS),
        (alert_pages.FORM_NAMES, alert_hooks.FORMS),
        ({role: label for role, label, _ in people_pages.ROLES}, permissions_module.ROLES),
        (PROJECT_MODES, get_args(ProjectMode)),
        (authorize.ABILITIES, scopes_module.SCOPES),
        (limit_forms.RULE_TYPES, rule_routes.TYPES),
    ],
)
def test_each_value_has_a_label(labels: dict[str, str], values: Iterable[str]) -> None:
    assert set(labels) == set(values) and all(labels.values())
