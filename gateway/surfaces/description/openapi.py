"""The API description, generated from the tables and schemas: `/openapi.json` (also `/json`), and with code samples
`/docs/openapi.json`, which the reference page reads."""

import functools
import gzip
import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, is_typeddict

import msgspec
import orjson
from marshmallow import Schema

from gateway import __version__
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.surfaces.description.code_samples import (
    SampleRequest,
    with_samples,
    write_curl,
    write_python,
    write_typescript,
)
from gateway.surfaces.description.examples import EVENTS, JSON, URLENCODED, add_examples
from gateway.surfaces.web import policy as policy_module
from gateway.surfaces.web.answer_structs import COLLECTION, NEWER, TAKE_ANY, describe_answer, is_body
from gateway.surfaces.web.http import About, Access, Deprecated, ErrorFormat, Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.http_responses import OPENAI
from gateway.surfaces.web.listing import accepts_gzip
from gateway.worker.services import Services

# The first section of the API reference: base URL, authentication, and a first request in three languages.

# The page puts the address at which it was opened in its place.
EXAMPLE_ADDRESS = "http://127.0.0.1:4001"
FIRST_REQUEST = SampleRequest(
    "POST",
    "/v1/chat/completions",
    "LLMGATEWAY_API_KEY",
    JSON,
    {"model": "auto", "messages": [{"role": "user", "content": "Hello!"}]},
)
START = f"""## Start here

* Base URL: `{EXAMPLE_ADDRESS}`. SDKs of OpenAI take `{EXAMPLE_ADDRESS}/v1`, those of Anthropic and Google the base URL.
* Authentication: `Authorization: Bearer $LLMGATEWAY_API_KEY`, or the same key as `x-api-key`. You create keys in the
  [console](console/keys).
* Errors: a status and `{{"error": {{"message", "type", "param", "code"}}}}`. `x-request-id` names the request.

```shell
export LLMGATEWAY_GATEWAY_URL={EXAMPLE_ADDRESS}
export LLMGATEWAY_API_KEY=llmgtwy_…
```

## First request

With curl:

```shell
{write_curl(FIRST_REQUEST)}
```

In Python, with `pip install requests`:

```python
{write_python(FIRST_REQUEST)}
```

In TypeScript, with Node.js:

```typescript
{write_typescript(FIRST_REQUEST)}
```

The model `auto` lets the gateway choose. Every answer names its cost in `usage.cost`, in USD. The
[guides](docs/guides) lead on."""


def with_start(document: dict[str, Any]) -> dict[str, Any]:
    """Return the API description with the section before all others."""
    info = document["info"]
    introduction, _, policy = info["description"].partition("\n\n")
    return {**document, "info": {**info, "description": f"{introduction}\n\n{START}\n\n{policy}"}}


if TYPE_CHECKING:
    import apispec
    import apispec.ext.marshmallow as apispec_marshmallow
else:
    apispec = LazyImport("apispec")
    apispec_marshmallow = LazyImport("apispec.ext.marshmallow")

CONTENT_TYPE = ("Content-Type", "application/json")
EMPTY = (202, 204, 303)  # statuses without a body
# Some tools take the schema of a stream for that of its text, others for that of each event; therefore it has no
# type.
OF_EVENTS = {"description": "Server-sent events; the data of each event is JSON described by x-event-schema."}
MODEL_VARIABLE = "model"
AUTO = "auto"
VARIABLE = re.compile(r"<(?:\w+:)?(\w+)>")
TITLE = "llmgateway"
INTRODUCTION = (
    "One API key for every model provider. Model operations take an API key "
    "(`Authorization: Bearer` or `x-api-key`), management operations a session (bearer token or cookie)."
)
# Errors of every operation that accepts an API key.
KEY_ERRORS = (400, 401, 402, 403, 404, 405, 409, 410, 413, 415, 422, 426, 429, 500, 502, 503, 504, 529)
KEY_SECURITY: list[dict[str, list[str]]] = [{"bearerKey": []}, {"headerKey": []}]
SECURITY: dict[Access, list[dict[str, list[str]]]] = {
    "session": [{"session": []}],
    "key": KEY_SECURITY,
    "optional": [{}, *KEY_SECURITY],
    "visitor": [{}, {"session": []}],
    "operator": [{"operatorToken": []}],
    "provisioning": [{"scimToken": []}],
    "none": [],
}
SCHEMES = {
    "bearerKey": {"type": "http", "scheme": "bearer", "description": "A project's API key."},
    "headerKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "A project's API key."},
    "operatorToken": {"type": "http", "scheme": "bearer", "description": "The token set in GATEWAY_METRICS_TOKEN."},
    "scimToken": {"type": "http", "scheme": "bearer", "description": "A SCIM token of an organization."},
    "session": {"type": "http", "scheme": "bearer", "description": "A session token."},
}


def surface(listed: Callable[[], Iterable[Operation]]) -> Surface:
    """Return the surface that describes `listed`. The description is generated on first use and cached compressed."""

    @functools.cache
    def document(server: str) -> dict[str, Any]:
        return describe(listed(), server)

    @functools.cache
    def text(server: str) -> bytes:
        return gzip.compress(orjson.dumps(document(server)), mtime=0)

    @functools.cache
    def text_with_samples(server: str) -> bytes:
        return gzip.compress(orjson.dumps(with_start(with_samples(document(server)))), mtime=0)

    def show(services: Services, inbound: Inbound) -> Outbound:
        """Return the OpenAPI 3.1 description of every operation."""
        return _reply(services, inbound, text)

    def show_with_samples(services: Services, inbound: Inbound) -> Outbound:
        """Return the description with code samples, which the reference page reads."""
        return _reply(services, inbound, text_with_samples)

    operations = (
        Operation("GET", "/openapi.json", show),
        Operation("GET", "/json", show),
        Operation("GET", "/docs/openapi.json", show_with_samples),
    )
    return Surface("description", OPENAI, operations, described=False)


def _reply(services: Services, inbound: Inbound, make: Callable[[str], bytes]) -> Outbound:
    """Return the cached result of `make`, compressed or plain as the client accepts. The first call takes more than a
    tenth of a second, so it runs in a thread."""
    packed = accepts_gzip(inbound.header("accept-encoding"))
    body = compute(make, services.settings.server.public_url.rstrip("/"))
    coding: tuple[tuple[str, str], ...] = ()
    if packed:
        coding = (("Content-Encoding", "gzip"),)
    else:
        body = compute(gzip.decompress, body)
    return Outbound(200, [CONTENT_TYPE, ("Cache-Control", "no-cache"), ("Vary", "Accept-Encoding"), *coding], body)


def describe(listed: Iterable[Operation], server: str = "") -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these operations, with examples.

    `server` is the public URL of the gateway, which may have a path; "": clients take the address of the document.
    """
    more: dict[str, Any] = {}
    if server:
        more["servers"] = [{"url": server}]
    spec = apispec.APISpec(
        TITLE,
        __version__,
        "3.1.0",
        info={"description": f"{INTRODUCTION}\n\n{policy_module.as_markdown()}"},
        externalDocs={"description": "Versions and deprecation", "url": policy_module.ADDRESS},
        **more,
        plugins=[apispec_marshmallow.MarshmallowPlugin(schema_name_resolver=_name_of)],
    )
    for name, scheme in SCHEMES.items():
        spec.components.security_scheme(name, scheme)
    known: set[str] = set()
    for operation in listed:
        path = VARIABLE.sub(r"{\1}", operation.path)
        spec.path(path, operations={operation.method.lower(): _describe(spec, operation, known)})
    return add_examples(spec.to_dict())


def _describe(spec: "apispec.APISpec", operation: Operation, known: set[str]) -> dict[str, Any]:
    about = operation.about or _guess(operation)
    written: dict[str, Any] = {
        "summary": about.summary,
        "operationId": _identify(operation),
        "tags": [about.tag or "Models"],
        "security": SECURITY[about.access],
        "parameters": _parameters(operation, about),
        "responses": _responses(spec, operation, about, known),
    }
    details = (
        getattr(operation.handler, "func", operation.handler).__doc__ or ""
    ).strip()  # functools.partial has its own docstring
    if details and details != about.summary:
        written["description"] = re.sub(r"\s+", " ", details)
    if about.request is not None or operation.body != "none":
        schema = _schema(spec, about.request, known) if about.request is not None else {"type": "object"}
        media: dict[str, Any] = {"application/json": {"schema": schema}}
        if about.example is not None:
            media["application/json"]["example"] = about.example
        if operation.body == "form" or about.form is not None:
            form = _schema(spec, about.form, known) if about.form is not None else {"type": "object"}
            media[about.form_media] = {"schema": form}
            if about.example is not None and about.form_media == URLENCODED:
                media[about.form_media]["example"] = about.example
        if about.form is not None and about.request is None:
            del media["application/json"]
        written["requestBody"] = {"required": True, "content": media}
    if operation.deprecated:
        written["deprecated"] = True
        written["description"] = f"{_describe_end(operation.deprecated)} {written.get('description', '')}".rstrip()
    return written


def _describe_end(deprecated: Deprecated) -> str:
    """Describe the dates of deprecation and removal, and the replacement."""
    until = f"It will be removed on {deprecated.sunset}." if deprecated.sunset else "No removal date is set."
    return f"Deprecated since {deprecated.since}. {until} See {deprecated.link or policy_module.ADDRESS}."


def _guess(operation: Operation) -> About:
    """Describe an operation from its row and its handler."""
    summary = (operation.handler.__doc__ or operation.path).strip().split("\n")[0].split(". ")[0].rstrip(".")
    keyed = operation.path.startswith(("/v1", "/v3", "/v4"))
    if keyed:
        return About(summary, access="optional" if operation.method == "GET" else "key")
    return About(summary, "Service", errors=(503,), access="none", media="*/*")


def _parameters(operation: Operation, about: About) -> list[Any]:
    variables: list[Any] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        | ({"example": AUTO} if name == MODEL_VARIABLE else {})
        for name in VARIABLE.findall(operation.path)
    ]
    for header in about.headers:
        schema = {"type": "string", "enum": list(header.words)} if header.words else {"type": "string", "minLength": 1}
        parameter = {"name": header.name, "in": "header", "description": header.description, "schema": schema}
        if header.example:
            parameter["example"] = header.example
        variables.append({**parameter, "required": header.required})
    if about.query is not None:
        variables += _query_parameters(about.query)
    return variables


def _query_parameters(query: type) -> list[Any]:
    """Return the parameters of a marshmallow class, which the plugin resolves, or of a typed dictionary."""
    if not is_typeddict(query):
        return [{"in": "query", "schema": query}]
    described = describe_answer(query)
    parameters = []
    for name, member in described["properties"].items():
        schema = dict(member)
        parameter = {"name": name, "in": "query", "required": name in described["required"], "schema": schema}
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        parameters.append(parameter)
    return parameters


def _responses(spec: "apispec.APISpec", operation: Operation, about: About, known: set[str]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status in (*about.success, *about.alike):
        answers[str(status)] = {"description": HTTPStatus(status).phrase}
        if status not in EMPTY:
            schema = _schema(spec, about.answer, known) if about.answer is not None else {}
            answers[str(status)]["content"] = {about.media: {"schema": schema}}
            answers[str(status)]["content"] |= {media: {"schema": {"type": "string"}} for media in about.also}
            if about.events is not None:
                events = {"schema": OF_EVENTS, "x-event-schema": _schema(spec, about.events, known)}
                answers[str(status)]["content"][EVENTS] = events
    errors = operation.errors or OPENAI
    for status in sorted(errors_of(about)):
        answers[str(status)] = {"$ref": f"#/components/responses/{_refusal(spec, errors, status, known)}"}
    return answers


def errors_of(about: About) -> set[int]:
    """Return the statuses of the described errors of an operation."""
    common = KEY_ERRORS if about.access in ("key", "optional") else ()
    return {*common, *about.errors}


def _refusal(spec: "apispec.APISpec", errors: ErrorFormat, status: int, known: set[str]) -> str:
    """Return the name of the component that describes an error response; create it on first use."""
    kind = f"error.{errors.name}"
    if kind not in known:
        known.add(kind)
        spec.components.schema(kind, errors.schema)
    name = f"{kind}.{status}"
    if name not in known:
        known.add(name)
        text = "Overloaded" if status == 529 else HTTPStatus(status).phrase
        schema = {"$ref": f"#/components/schemas/{kind}"}
        spec.components.response(name, {"description": text, "content": {errors.media: {"schema": schema}}})
    return name


def _schema(spec: "apispec.APISpec", described: Any, known: set[str]) -> Any:
    """Return the schema of a JSON schema, a marshmallow class (which the plugin resolves), the struct of a body, or the
    type of an answer."""
    if isinstance(described, dict):
        return _hoist(spec, described, known)
    if isinstance(described, type) and issubclass(described, Schema):
        return described
    if not is_body(described):
        return _hoist(spec, describe_answer(described), known)
    # Two surfaces may use one name for different structs.
    surface = described.__module__.split(".")[-2]
    (schema,), parts = msgspec.json.schema_components(
        [described], ref_template="#/components/schemas/" + surface + ".{name}"
    )
    for name, part in parts.items():
        if f"{surface}.{name}" not in known and name != COLLECTION:
            known.add(f"{surface}.{name}")
            spec.components.schema(f"{surface}.{name}", _opened(part) if name in TAKE_ANY else part)
    return schema


def _opened(part: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a struct with open members: callers may write any, and the lenient parser collects them."""
    known = {name: inner for name, inner in part["properties"].items() if name != NEWER}
    return {**{name: value for name, value in part.items() if name != "additionalProperties"}, "properties": known}


def _hoist(spec: "apispec.APISpec", value: Any, known: set[str]) -> Any:
    """Return the schema with every titled part replaced by a reference to a component of that name."""
    if isinstance(value, list):
        return [_hoist(spec, item, known) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: _hoist(spec, item, known) for key, item in value.items()}
    title = value.get("title")
    if not isinstance(title, str):
        return inner
    if title not in known:
        known.add(title)
        spec.components.schema(title, inner)
    return {"$ref": f"#/components/schemas/{title}"}


def _name_of(schema: Any) -> str:
    """Return the name of a schema in the description: the subject of its file and its class, as in `keys.NewKey`."""
    kind = schema if isinstance(schema, type) else type(schema)
    subject = kind.__module__.rpartition(".")[2]
    if subject.endswith("_routes"):
        subject = subject.removesuffix("_routes") + "s"
    return f"{subject}.{kind.__name__}"


def _identify(operation: Operation) -> str:
    words = re.findall(r"\w+", operation.path)
    if words:
        return "_".join((operation.method.lower(), *words))
    return f"{operation.method.lower()}_root"
