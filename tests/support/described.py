"""Requests that the API description allows, and whether what comes back is what it promises."""

from functools import lru_cache

import schemathesis
from flask import Flask
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


SEARCHED = 10


@lru_cache(1)
def description_of(app: Flask) -> "schemathesis.BaseSchema":
    """What the gateway says of its operations. Nothing is taken out of the product's modules to make requests of: these
    would be others with each change, and each process would read the whole product."""
    schema = schemathesis.openapi.from_wsgi("/openapi.json", app)
    schema.config.analysis.constants.enabled = False
    return schema


def examples(count: int) -> settings:
    """So many of an operation, always the same: those of the description, then made ones; none is shrunk. Where new
    ones are searched these are new, and SEARCHED times as many."""
    steady = settings.default.derandomize
    return settings(
        max_examples=count if steady else count * SEARCHED,
        deadline=None,
        database=None,
        derandomize=steady,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
