"""The code samples of the API reference."""

import json
import shlex

import pytest

from gateway.surfaces import surface_table
from gateway.surfaces.description import code_samples as code_samples_module
from gateway.surfaces.description import openapi as openapi_module

CHAT = ("post", "/v1/chat/completions")
UPLOAD = ("post", "/v1/audio/transcriptions")


@pytest.fixture(scope="module")
def document():
    return code_samples_module.with_samples(openapi_module.describe(surface_table.described()))


def sample(document, method, path, label):
    samples = document["paths"][path][method]["x-codeSamples"]
    return next(sample["source"] for sample in samples if sample["label"] == label)


def test_every_operation_has_a_sample_in_three_languages(document) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            labels = [sample["label"] for sample in operation["x-codeSamples"]]
            assert labels == ["curl", "Python", "TypeScript"], (method, path)


def test_a_described_reference_keeps_its_description_in_the_version_that_the_page_reads(document) -> None:
    assert document["openapi"].startswith("3.0")
    rule = document["components"]["schemas"]["group_rules.NewGroupRule"]["properties"]["limits"]
    assert rule.pop("description").startswith("Spending limits") and list(rule) == ["allOf"]


def test_every_command_is_one_that_the_shell_can_split(document) -> None:
    for path, methods in document["paths"].items():
        for method in methods:
            arguments = shlex.split(sample(document, method, path, "curl"))
            assert arguments[0] == "curl" and "{" not in "".join(word for word in arguments if word.startswith("$")), (
                path
            )


def test_every_operation_that_requires_a_credential_has_one_in_its_samples(document) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            sent = "Authorization: Bearer $" in sample(document, method, path, "curl")
            assert sent == any(operation["security"]), (method, path)


def test_every_python_program_compiles(document) -> None:
    for path, methods in document["paths"].items():
        for method in methods:
            compile(sample(document, method, path, "Python"), path, "exec")


def test_a_command_sends_the_example_with_the_key(document) -> None:
    arguments = shlex.split(sample(document, *CHAT, "curl"))
    content = document["paths"][CHAT[1]][CHAT[0]]["requestBody"]["content"]["application/json"]
    assert json.loads(arguments[arguments.index("-d") + 1]) == content["examples"]["example"]["value"]
    assert arguments[1] == "$LLMGATEWAY_GATEWAY_URL/v1/chat/completions"
    assert "Authorization: Bearer $LLMGATEWAY_API_KEY" in arguments


def test_a_form_with_a_file_is_sent_as_such(document) -> None:
    assert "-F file=@audio.mp3" in sample(document, *UPLOAD, "curl")
    assert 'files={"file": open("audio.mp3", "rb")}' in sample(document, *UPLOAD, "Python")
    assert 'form.append("file", await openAsBlob("audio.mp3"), "audio.mp3");' in sample(document, *UPLOAD, "TypeScript")


@pytest.mark.parametrize(
    "method, path, file",
    [
        ("post", "/v1/audio/speech", "speech.mp3"),
        ("get", "/v1/videos/{video_id}/content", "video.mp4"),
        ("get", "/logs/export", "export.csv"),
        ("get", "/oauth/authorize", "page.html"),
    ],
)
def test_sound_video_and_exports_are_stored_in_a_file(document, method: str, path: str, file: str) -> None:
    arguments = shlex.split(sample(document, method, path, "curl"))
    assert arguments[arguments.index("-o") + 1] == file
    assert f'open("{file}", "wb").write(response.content)' in sample(document, method, path, "Python")
    assert f'await writeFile("{file}",' in sample(document, method, path, "TypeScript")


def test_scim_documents_have_an_example(document) -> None:
    answer = document["paths"]["/scim/v2/Users"]["post"]["responses"]["201"]["content"]["application/scim+json"]
    assert "userName" in answer["examples"]["example"]["value"]


def test_a_management_operation_takes_a_session(document) -> None:
    assert "Bearer $LLMGATEWAY_SESSION" in sample(document, "get", "/orgs", "curl")


def test_a_quote_in_the_example_stays_within_the_command() -> None:
    request = code_samples_module.SampleRequest("POST", "/x", "", "application/json", {"text": "it's"})
    arguments = shlex.split(code_samples_module.write_curl(request))
    assert json.loads(arguments[-1]) == {"text": "it's"}


def test_the_service_comes_last(document) -> None:
    assert document["tags"][-1] == {"name": "Service"} and {"name": "Models"} in document["tags"]
