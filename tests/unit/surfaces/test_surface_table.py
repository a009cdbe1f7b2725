import re

import pytest

from gateway.neutral import operations
from gateway.surfaces import surface_table
from gateway.surfaces.management.table import OPERATIONS

# Paths in the API references of vendors that the gateway does not serve.
OPENAI = (
    *(
        "vector_stores/vs_1/search",
        "assistants",
        "threads/thread_1/runs",
        "conversations/conv_1/items",
        "fine_tuning/jobs",
        "images/variations",
    ),
    *("realtime/calls/call_1/accept", "realtime/sessions", "realtime/transcription_sessions"),
    "realtime/translations/client_secrets",
)
METHODS = (":predict", ":predictLongRunning", ":batchGenerateContent", ":asyncBatchEmbedContent")
OTHERS = (
    *("/v1beta/files/abc", "/upload/v1beta/files", "/v1beta/batches", "/v1beta/cachedContents/abc"),  # Gemini
    *(f"/v1beta/models/imagen-4{method}" for method in METHODS),
)


def test_a_published_path_that_is_not_served_is_answered_with_what_to_use_instead() -> None:
    served = {f"{operation.method} {operation.path}" for operation in surface_table.operations()}
    for path in (*(f"/v1/{path}" for path in OPENAI), *OTHERS):
        hint = surface_table.instead_of(path)
        assert hint, path
        assert set(re.findall(r"POST /[\w/]+", hint)) <= served, hint


def test_published_paths_of_videos_that_are_not_served_are_not_taken_for_the_id_of_a_video() -> None:
    paths = [f"/v1/videos/{name}" for name in ("edits", "extensions", "characters")]
    assert all(surface_table.is_absent(path) for path in paths)


def test_methods_of_gemini_that_are_not_served_are_not_taken_for_the_name_of_a_model() -> None:
    assert all(surface_table.is_absent(f"/v1beta/models/imagen-4{method}") for method in METHODS)
    assert not surface_table.is_absent("/v1beta/models/sandbox-echo:generateContent")


def test_a_path_beside_a_management_operation_is_refused_in_the_format_of_the_management_api() -> None:
    assert {surface_table.errors_at(f"{operation.path}/unknown").name for operation in OPERATIONS} == {"management"}


@pytest.mark.parametrize(
    ("format_name", "paths"),
    [
        ("google", "/v1beta/unknown /upload/v1beta/files"),
        ("anthropic", "/v1/messages/unknown /managed/unknown /api/oauth/usage/unknown"),
        ("anthropic", "/v1/metrics/unknown /v1/logs/unknown /v1/traces/unknown"),
        ("aisdk", "/v1/ai/unknown /v3/ai/unknown /v4/ai/unknown"),
        ("cohere", "/v2/unknown"),
        ("oauth", "/oauth/unknown /.well-known/unknown"),
        ("scim", "/scim/v2/unknown"),
        ("openai", "/v1/unknown /unknown"),
    ],
)
def test_an_unknown_path_is_refused_in_the_format_of_the_clients_that_use_its_prefix(
    format_name: str, paths: str
) -> None:
    assert {surface_table.errors_at(path).name for path in paths.split()} == {format_name}


def test_the_path_of_every_operation_that_calls_models_is_served() -> None:
    served = {operation.path for operation in surface_table.operations()}
    assert {operation.path for operation in operations.OPERATIONS.values()} <= served
