import re

from gateway.neutral import operations
from gateway.surfaces import surface_table
from gateway.surfaces.management.table import OPERATIONS

# Paths in the API references of vendors that the gateway does not serve.
OPENAI = (
    *("files", "files/file_1/content", "uploads/upload_1/parts", "batches", "vector_stores/vs_1/search"),
    *("assistants", "threads/thread_1/runs", "conversations/conv_1/items", "fine_tuning/jobs", "images/variations"),
    *("realtime/calls/call_1/accept", "realtime/sessions", "realtime/transcription_sessions"),
    "realtime/translations/client_secrets",
)
METHODS = (":predict", ":predictLongRunning", ":batchGenerateContent", ":asyncBatchEmbedContent")
OTHERS = (
    *("/v1beta/files/abc", "/upload/v1beta/files", "/v1beta/batches", "/v1beta/cachedContents/abc"),  # Gemini
    *(f"/v1beta/models/imagen-4{method}" for method in METHODS),
    "/v1/messages/batches/msgbatch_1/results",  # Anthropic
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


def test_the_path_of_every_operation_that_calls_models_is_served() -> None:
    served = {operation.path for operation in surface_table.operations()}
    assert {operation.path for operation in operations.OPERATIONS.values()} <= served
