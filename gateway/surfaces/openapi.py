"""The API description: `/openapi.json` (also `/json`), generated from the tables and schemas, and `/docs`, its page."""

import functools
import gzip
import hashlib
import html
import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import orjson
from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from marshmallow import Schema

from gateway import __version__
from gateway.runtime.threads import compute
from gateway.surfaces import policy
from gateway.surfaces.http import About, Deprecated, ErrorFormat, Inbound, Operation, Outbound, Surface
from gateway.surfaces.http_responses import OPENAI
from gateway.surfaces.listing import accepts_gzip
from gateway.worker.services import Services

EXAMPLES = Path(__file__).with_name("examples.json")
Examples = dict[str, dict[str, Any]]
EVENTS = "text/event-stream"
EMPTY = (202, 204, 303)  # statuses without a body
URLENCODED = "application/x-www-form-urlencoded"
# Some tools take the schema of a stream for that of its text, others for that of each event; therefore it has no
# type.
OF_EVENTS = {"description": "Server-sent events; the data of each event is JSON described by x-event-schema."}
VARIABLE = re.compile(r"<(?:\w+:)?(\w+)>")
TITLE = "llmgateway"
INTRODUCTION = (
    "One API key for every model provider. Model operations take an API key "
    "(`Authorization: Bearer` or `x-api-key`), management operations a session (bearer token or cookie)."
)
# Errors of an operation that declares none itself.
UNSAID = (400, 401, 402, 403, 404, 405, 409, 410, 413, 415, 422, 426, 429, 500, 502, 503, 504, 529)
KEY_SECURITY: list[dict[str, list[str]]] = [{"bearerKey": []}, {"headerKey": []}]
SECURITY: dict[str, list[dict[str, list[str]]]] = {
    "session": [{"session": []}],
    "key": KEY_SECURITY,
    "optional": [{}, *KEY_SECURITY],
    "operator": [{"operatorToken": []}],
    "none": [],
}
SCHEMES = {
    "bearerKey": {"type": "http", "scheme": "bearer", "description": "A project's API key."},
    "headerKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "A project's API key."},
    "operatorToken": {"type": "http", "scheme": "bearer", "description": "The token set in GATEWAY_METRICS_TOKEN."},
    "session": {"type": "http", "scheme": "bearer", "description": "A session token."},
}
STYLE = (
    ":root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--shade:#f6f6f6}"
    "@media (prefers-color-scheme:dark){:root{--ink:#e8e8e8;--paper:#161616;--shade:#222}}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere;"
    "color:var(--ink);background:var(--paper)}"
    "pre,code{font:13px/1.5 ui-monospace,monospace}"
    "pre{background:var(--shade);padding:.75rem;overflow:auto;overflow-wrap:normal}"
    "summary{cursor:pointer;padding:.3rem 0}.m{display:inline-block;min-width:4.5rem;font-weight:600}"
    ".d{text-decoration:line-through}"
)

# The page is the same for all callers, so the content security policy allows its style by hash.
STYLE_HASH = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
PAGE_POLICY = f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; frame-ancestors 'none'; base-uri 'none'"


def surface(listed: Callable[[], Iterable[Operation]]) -> Surface:
    """Return the surface that describes `listed`. Description and page are generated on first use and cached
    compressed."""
    document = functools.cache(lambda: describe(listed(), read_examples()))
    text = functools.cache(lambda: gzip.compress(orjson.dumps(document()), mtime=0))
    page = functools.cache(lambda: gzip.compress(write_page(document()).encode(), mtime=0))

    def show(services: Services, inbound: Inbound) -> Outbound:
        """Return the OpenAPI 3.1 description of every operation."""
        return _reply(inbound, text, ("Content-Type", "application/json"))

    def read(services: Services, inbound: Inbound) -> Outbound:
        """Return the same description as an HTML page without external resources."""
        return _reply(
            inbound, page, ("Content-Type", "text/html; charset=utf-8"), ("Content-Security-Policy", PAGE_POLICY)
        )

    operations = (
        Operation("GET", "/openapi.json", show),
        Operation("GET", "/json", show),
        Operation("GET", "/docs", read),
    )
    return Surface("description", OPENAI, operations, described=False)


def _reply(inbound: Inbound, make: Callable[[], bytes], *headers: tuple[str, str]) -> Outbound:
    """Return the cached result of `make`, compressed or plain as the client accepts. The first call takes more than a
    tenth of a second, so it runs in a thread."""
    packed = accepts_gzip(inbound.header("accept-encoding"))
    body = compute(make) if packed else compute(lambda: gzip.decompress(make()))
    coding = (("Content-Encoding", "gzip"),) if packed else ()
    return Outbound(200, [*headers, ("Cache-Control", "no-cache"), ("Vary", "Accept-Encoding"), *coding], body)


def read_examples() -> Examples:
    """Return requests and responses by "METHOD /path", recorded from the sandbox."""
    return orjson.loads(EXAMPLES.read_bytes())


def describe(listed: Iterable[Operation], examples: Examples | None = None) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these operations, with `examples` of some."""
    spec = APISpec(
        TITLE,
        __version__,
        "3.1.0",
        info={"description": f"{INTRODUCTION}\n\n{policy.as_markdown()}"},
        externalDocs={"description": "Versions and deprecation", "url": policy.ADDRESS},
        plugins=[MarshmallowPlugin(schema_name_resolver=_name_of)],
    )
    for name, scheme in SCHEMES.items():
        spec.components.security_scheme(name, scheme)
    known: set[str] = set()
    for operation in listed:
        path = VARIABLE.sub(r"{\1}", operation.path)
        described = _describe(spec, operation, known)
        _show_example(described, (examples or {}).get(f"{operation.method} {path}", {}))
        spec.path(path, operations={operation.method.lower(): described})
    return spec.to_dict()


def _describe(spec: APISpec, operation: Operation, known: set[str]) -> dict[str, Any]:
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
        if about.request is not None:
            schema = _schema(spec, about.request, known)
        else:
            schema = {"type": "object"}
        media = {"application/json": {"schema": schema}}
        if operation.body == "form" or about.form is not None:
            if about.form is not None:
                form = _schema(spec, about.form, known)
            else:
                form = {"type": "object"}
            media[about.form_media] = {"schema": form}
        if about.form is not None and about.request is None:
            del media["application/json"]
        written["requestBody"] = {"required": True, "content": media}
    if operation.deprecated:
        written["deprecated"] = True
        written["description"] = f"{_describe_end(operation.deprecated)} {written.get('description', '')}".rstrip()
    return written


def _show_example(described: dict[str, Any], example: dict[str, Any]) -> None:
    """Add the recorded request and response beside their schemas: `request`, `answer`, the text `events` of a stream,
    and the `refusal` with its `status` for an operation that only refuses."""
    body = described.get("requestBody", {}).get("content", {})
    for media, shown in body.items():
        if "request" in example and (media in ("application/json", URLENCODED) or len(body) == 1):
            shown["example"] = example["request"]
    for status, answer in described["responses"].items():
        for media, shown in answer.get("content", {}).items() if status.startswith("2") else ():
            if media == EVENTS:
                name = "events"
            else:
                name = "answer"
            if name in example and (media == EVENTS or media == next(iter(answer["content"]))):
                shown["example"] = example[name]
        if status == str(example.get("status")):
            _show_refusal(answer, example["refusal"])


def _show_refusal(answer: dict[str, Any], refusal: Any) -> None:
    """Write out the response of an operation that refused, with the example beside its schema."""
    name = answer.pop("$ref").rpartition("/")[2]
    kind, _, status = name.rpartition(".")
    schema = {"$ref": f"#/components/schemas/{kind}"}
    answer["description"] = HTTPStatus(int(status)).phrase
    answer["content"] = {"application/json": {"schema": schema, "example": refusal}}


def _describe_end(deprecated: Deprecated) -> str:
    """Describe the dates of deprecation and removal, and the replacement."""
    if deprecated.sunset:
        until = f"It will be removed on {deprecated.sunset}."
    else:
        until = "No removal date is set."
    return f"Deprecated since {deprecated.since}. {until} See {deprecated.link or policy.ADDRESS}."


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
        for name in VARIABLE.findall(operation.path)
    ]
    for header in about.headers:
        schema = {"type": "string", "enum": list(header.words)} if header.words else {"type": "string", "minLength": 1}
        parameter = {"name": header.name, "in": "header", "description": header.description, "schema": schema}
        variables.append({**parameter, "required": header.required})
    if about.query is not None:
        variables.append({"in": "query", "schema": about.query})
    return variables


def _responses(spec: APISpec, operation: Operation, about: About, known: set[str]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status in (*about.success, *about.alike):
        answers[str(status)] = {"description": HTTPStatus(status).phrase}
        if status not in EMPTY:
            if about.answer is not None:
                schema = _schema(spec, about.answer, known)
            else:
                schema = {}
            answers[str(status)]["content"] = {about.media: {"schema": schema}}
            answers[str(status)]["content"] |= {media: {"schema": {"type": "string"}} for media in about.also}
            if about.events is not None:
                events = {"schema": OF_EVENTS, "x-event-schema": _schema(spec, about.events, known)}
                answers[str(status)]["content"][EVENTS] = events
    errors = operation.errors or OPENAI
    for status in about.errors or (UNSAID if about.access in ("key", "optional") else ()):
        answers[str(status)] = {"$ref": f"#/components/responses/{_refusal(spec, errors, status, known)}"}
    return answers


def _refusal(spec: APISpec, errors: ErrorFormat, status: int, known: set[str]) -> str:
    """Return the name of the component that describes an error response; create it on first use."""
    kind = f"error.{errors.name}"
    if kind not in known:
        known.add(kind)
        spec.components.schema(kind, errors.schema)
    name = f"{kind}.{status}"
    if name not in known:
        known.add(name)
        if status == 529:
            text = "Overloaded"
        else:
            text = HTTPStatus(status).phrase
        schema = {"$ref": f"#/components/schemas/{kind}"}
        spec.components.response(name, {"description": text, "content": {"application/json": {"schema": schema}}})
    return name


def _schema(spec: APISpec, given: Any, known: set[str]) -> Any:
    """Return the schema of a JSON schema, a marshmallow class (which the plugin resolves) or a msgspec struct."""
    if isinstance(given, dict):
        return _hoist(spec, given, known)
    if isinstance(given, type) and issubclass(given, Schema):
        return given
    # Two surfaces may use one name for different structs.
    surface = given.__module__.split(".")[-2]
    (schema,), parts = msgspec.json.schema_components(
        [given], ref_template="#/components/schemas/" + surface + ".{name}"
    )
    for name, part in parts.items():
        if f"{surface}.{name}" not in known:
            known.add(f"{surface}.{name}")
            spec.components.schema(f"{surface}.{name}", part)
    return schema


def _hoist(spec: APISpec, value: Any, known: set[str]) -> Any:
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


def write_page(document: dict[str, Any]) -> str:
    """Return the description as HTML: a line for each operation, which opens to show its parameters, body and
    responses."""
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_write_operation(method, path, operation))
    parts = "".join(f"<h2>{html.escape(tag)}</h2>{''.join(lines)}" for tag, lines in sorted(groups.items()))
    schemas = _write_json(document["components"]["schemas"])
    info = document["info"]
    introduction, _, _ = info["description"].partition("\n\n")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(info["title"])} API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{html.escape(info['title'])} API {html.escape(info['version'])}</h1>"
        f"<p>{_write_text(introduction)} "
        f'<a href="openapi.json">openapi.json</a> · <a href="#{policy.ANCHOR}">Versions and deprecation</a></p>{parts}'
        f"<h2>Schemas</h2><details><summary>All schemas</summary>{schemas}</details>{_write_policy()}</html>"
    )


def _write_policy() -> str:
    parts = [
        f"<h3>{html.escape(title)}</h3><ul>{''.join(f'<li>{_write_text(rule)}</li>' for rule in rules)}</ul>"
        for title, rules in policy.POLICY
    ]
    return f'<h2 id="{policy.ANCHOR}">Versions and deprecation</h2>{"".join(parts)}'


def _write_text(text: str) -> str:
    """Return the text with everything between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _write_operation(method: str, path: str, operation: dict[str, Any]) -> str:
    line = f'<span class="m">{method.upper()}</span> <code>{html.escape(path)}</code>'
    if operation.get("deprecated"):
        line = f'<span class="d">{line}</span>'
    shown = {key: operation[key] for key in ("parameters", "requestBody", "responses") if operation.get(key)}
    text = _write_text(operation.get("description", ""))
    return (
        f"<details><summary>{line} {html.escape(operation['summary'])}</summary>"
        f"<p>{text}</p>{_write_json(shown)}</details>"
    )


def _write_json(value: Any) -> str:
    return f"<pre>{html.escape(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())}</pre>"
