"""Generates requests from the API description and checks responses against it."""

from functools import lru_cache

import gevent
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
    """Return the gateway's API description. Requests are not generated from literals of the product's modules: these
    change with each commit, and each process would read the whole product."""
    schema = schemathesis.openapi.from_wsgi("/openapi.json", app)
    schema.config.analysis.constants.enabled = False
    return schema


def examples(count: int) -> settings:
    """Return Hypothesis settings for `count` deterministic examples of an operation: those of the description, then
    generated ones, without shrinking. Profiles that search use SEARCHED times as many new examples."""
    steady = settings.default.derandomize
    return settings(
        max_examples=count if steady else count * SEARCHED,
        deadline=None,
        database=None,
        derandomize=steady,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def call(case: "schemathesis.Case", headers: dict[str, str]) -> "schemathesis.Response":
    """Send a case, again while the gateway answers that its database is busy: on a busy machine it may be for
    seconds."""
    for pause_s in (0.2, 1.0, 5.0):
        answer = case.call(headers=headers)
        if answer.status_code != 503 or b"try again" not in answer.content:
            return answer
        gevent.sleep(pause_s)
    return case.call(headers=headers)
