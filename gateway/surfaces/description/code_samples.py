"""Code samples of the API reference: each operation's example request for curl, Python and TypeScript.

The address of the gateway and the credential come from the environment, as the command-line client names them.
"""

import re
from collections.abc import Mapping
from pprint import pformat
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson

from gateway.surfaces.description.examples import JSON, MULTIPART, URLENCODED, is_file

ADDRESS = "LLMGATEWAY_GATEWAY_URL"
VARIABLE = re.compile(r"\{(\w+)\}")
# The environment variable with the credential, by the name of the security scheme.
CREDENTIALS = {
    "bearerKey": "LLMGATEWAY_API_KEY",
    "session": "LLMGATEWAY_SESSION",
    "operatorToken": "GATEWAY_METRICS_TOKEN",
    "scimToken": "LLMGATEWAY_SCIM_TOKEN",
}
# The file in which a sample stores a response that is not meant to be read in a terminal, by its media type.
STORED = {
    "audio/*": "speech.mp3",
    "video/mp4": "video.mp4",
    "text/csv; charset=utf-8": "export.csv",
    "text/html": "page.html",
}
WIDTH = 96
LAST = "Service"  # the tag of health checks and the like
# RapiDoc resolves the references of OpenAPI 3.1 with a library that takes seconds, those of 3.0 with another. It shows
# the schemas of both alike.
VERSION = "3.0.3"


class SampleRequest(NamedTuple):
    """The example request of an operation. `content` is its media type, "" without a body; `files` are the names of
    the files of a form by its fields. `stored` is the file for its response, "" for one that is printed. `headers` are
    required ones."""

    method: str
    path: str
    credential: str
    content: str = ""
    body: Any = None
    files: Mapping[str, str] = {}
    stored: str = ""
    headers: Mapping[str, str] = {}


def with_samples(document: dict[str, Any]) -> dict[str, Any]:
    """Return the API description as the reference page reads it.

    Every operation has `x-codeSamples`, examples have names (the renderer takes the members of a single one for names),
    the operations of the service itself come last, and references are those of OpenAPI 3.0.
    """
    paths = {
        path: {method: _with_samples(method, path, operation) for method, operation in methods.items()}
        for path, methods in document["paths"].items()
    }
    tags = dict.fromkeys(
        tag for methods in paths.values() for operation in methods.values() for tag in operation["tags"]
    )
    names = sorted(tags, key=LAST.__eq__)
    tagged = {**document, "openapi": VERSION, "paths": paths, "tags": [{"name": name} for name in names]}
    separated: dict[str, Any] = _separate_references(tagged)
    return separated


def _separate_references(value: Any) -> Any:
    """Return the value with each reference that has further members, which OpenAPI 3.0 ignores, in an allOf."""
    if isinstance(value, list):
        return [_separate_references(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {name: _separate_references(item) for name, item in value.items()}
    if "$ref" in members and len(members) > 1:
        return {"allOf": [{"$ref": members.pop("$ref")}], **members}
    return members


def _with_samples(method: str, path: str, operation: dict[str, Any]) -> dict[str, Any]:
    request = read_request(method, path, operation)
    samples = [
        {"lang": "shell", "label": "curl", "source": write_curl(request)},
        {"lang": "python", "label": "Python", "source": write_python(request)},
        {"lang": "typescript", "label": "TypeScript", "source": write_typescript(request)},
    ]
    written = {**operation, "x-codeSamples": samples}
    if "requestBody" in operation:
        written["requestBody"] = _name_examples(operation["requestBody"])
    written["responses"] = {status: _name_examples(answer) for status, answer in operation["responses"].items()}
    return written


def _name_examples(body: dict[str, Any]) -> dict[str, Any]:
    contents = {}
    for media, content in body.get("content", {}).items():
        contents[media] = dict(content)
        if "example" in content:
            contents[media]["examples"] = {"example": {"value": contents[media].pop("example")}}
    if contents:
        return {**body, "content": contents}
    return body


def read_request(method: str, path: str, operation: Mapping[str, Any]) -> SampleRequest:
    """Return the example request of a described operation."""
    schemes = [name for choice in operation.get("security", ()) for name in choice]
    credential = next((CREDENTIALS[name] for name in schemes if name in CREDENTIALS), "")
    parameters = operation.get("parameters", ())
    known = {one["name"]: one["example"] for one in parameters if "example" in one}
    path = VARIABLE.sub(lambda match: known.get(match[1], match[1].upper()), path)
    headers = {one["name"]: known[one["name"]] for one in parameters if one["in"] == "header" and one["name"] in known}
    request = SampleRequest(method.upper(), path, credential, stored=_find_stored(operation), headers=headers)
    contents: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    for content in (JSON, URLENCODED):
        if content in contents:
            return request._replace(content=content, body=contents[content].get("example", {}))
    if MULTIPART in contents:
        fields = contents[MULTIPART]["schema"]["properties"]
        example = contents[MULTIPART]["example"]
        files = {name: value for name, value in example.items() if is_file(fields[name])}
        # One file of a field that takes several.
        files |= {name: example[name][0] for name in example if is_file(fields[name].get("items", {}))}
        body = {name: value for name, value in example.items() if name not in files}
        return request._replace(content=MULTIPART, body=body, files=files)
    return request


def _find_stored(operation: Mapping[str, Any]) -> str:
    answer = operation["responses"].get("200", {}).get("content", {})
    return next((STORED[media] for media in answer if media in STORED), "")


def write_curl(request: SampleRequest) -> str:
    """Return the request as a shell command."""
    lines = [f'curl "${ADDRESS}{request.path}"']
    if request.method != ("POST" if request.content else "GET"):
        lines[0] = f'curl -X {request.method} "${ADDRESS}{request.path}"'
    if request.credential:
        lines.append(f'-H "Authorization: Bearer ${request.credential}"')
    lines += [f'-H "{name}: {value}"' for name, value in request.headers.items()]
    if request.content == JSON:
        text = orjson.dumps(request.body, option=orjson.OPT_INDENT_2).decode().replace("'", "'\\''")
        lines += ['-H "Content-Type: application/json"', f"-d '{text}'"]
    elif request.content == URLENCODED:
        lines.append(f"-d '{urlencode(request.body)}'")
    elif request.content:
        lines += [f"-F {name}=@{file}" for name, file in request.files.items()]
        lines += [f"-F {name}={value}" for name, value in request.body.items()]
    if request.stored:
        lines.append(f"-o {request.stored}")
    return " \\\n  ".join(lines)


def write_python(request: SampleRequest) -> str:
    """Return the request as a Python program that uses `requests`."""
    arguments = [f'os.environ["{ADDRESS}"] + "{request.path}"']
    named = [f'"{name}": "{value}"' for name, value in request.headers.items()]
    if request.credential:
        named.insert(0, f'"Authorization": f"Bearer {{os.environ[\'{request.credential}\']}}"')
    if named:
        arguments.append(f"headers={{{', '.join(named)}}}")
    if request.files:
        files = ", ".join(f'"{name}": open("{file}", "rb")' for name, file in request.files.items())
        arguments.append(f"files={{{files}}}")
    if request.content:
        name = "json" if request.content == JSON else "data"
        text = pformat(request.body, width=WIDTH, sort_dicts=False).replace("\n", "\n    " + " " * (len(name) + 1))
        arguments.append(f"{name}={text}")
    call = "".join(f"    {argument},\n" for argument in arguments)
    lines = ["import os", "", "import requests", "", f"response = requests.{request.method.lower()}(\n{call})"]
    result = "print(response.text)"
    if request.stored:
        result = f'open("{request.stored}", "wb").write(response.content)'
    return "\n".join([*lines, "response.raise_for_status()", result])


def write_typescript(request: SampleRequest) -> str:
    """Return the request as a TypeScript program that uses `fetch`."""
    lines: list[str] = []
    headers = []
    options = [f'method: "{request.method}"']
    if request.credential:
        headers.append(f"Authorization: `Bearer ${{process.env.{request.credential}}}`")
    headers += [f'"{name}": "{value}"' for name, value in request.headers.items()]
    if request.content == JSON:
        headers.append('"Content-Type": "application/json"')
        text = orjson.dumps(request.body, option=orjson.OPT_INDENT_2).decode().replace("\n", "\n  ")
        options.append(f"body: JSON.stringify({text})")
    elif request.content == URLENCODED:
        options.append(f"body: new URLSearchParams({orjson.dumps(request.body).decode()})")
    elif request.content:
        lines = ["const form = new FormData();"]
        lines += [
            f'form.append("{name}", await openAsBlob("{file}"), "{file}");' for name, file in request.files.items()
        ]
        lines += [f'form.append("{name}", "{value}");' for name, value in request.body.items()]
        options.append("body: form")
        lines.insert(0, 'import { openAsBlob } from "node:fs";\n')
    if headers:
        options.insert(1, f"headers: {{ {', '.join(headers)} }}")
    call = "".join(f"  {option},\n" for option in options)
    lines.append(f"const response = await fetch(`${{process.env.{ADDRESS}}}{request.path}`, {{\n{call}}});")
    result = "console.log(response.status, await response.text());"
    if request.stored:
        lines.insert(0, 'import { writeFile } from "node:fs/promises";\n')
        result = f'await writeFile("{request.stored}", Buffer.from(await response.arrayBuffer()));'
    return "\n".join([*lines, result])
