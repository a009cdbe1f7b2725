"""Tools that the conformance suite requires, on the dispatcher of `/mcp` at a separate path; only for tests."""

from base64 import b64encode
from functools import partial
from typing import Any

from gateway.providers.sandbox import speech
from gateway.providers.sandbox.images import png
from gateway.surfaces.mcp import routes, tool_schemas
from gateway.surfaces.mcp.tool_schemas import Json, text_of
from gateway.surfaces.mcp.tool_table import OfferedTool
from gateway.worker.extensions import Extension

PATH = "/conformance/mcp"
IMAGE = {"type": "image", "data": b64encode(png(1, 1, "")).decode(), "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": b64encode(speech.make("wav", 0.1)).decode(), "mimeType": "audio/wav"}


def resource(name: str, kind: str, text: str) -> Json:
    return {"type": "resource", "resource": {"uri": f"test://{name}", "mimeType": kind, "text": text}}


ANSWERS: dict[str, Json] = {
    "test_simple_text": {"content": [text_of("This is a simple text response for testing.")]},
    "test_image_content": {"content": [IMAGE]},
    "test_audio_content": {"content": [AUDIO]},
    "test_embedded_resource": {
        "content": [resource("embedded-resource", "text/plain", "This is an embedded resource content.")]
    },
    "test_multiple_content_types": {
        "content": [
            text_of("Multiple content types test:"),
            IMAGE,
            resource("mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ]
    },
    "test_error_handling": {
        "isError": True,
        "content": [text_of("This tool intentionally returns an error for testing")],
    },
}
NEWEST = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


class ShownTool(OfferedTool, frozen=True):
    """A tool that shows its schema unchanged."""

    def show(self) -> Json:
        return {"name": self.name, "description": self.description, "inputSchema": NEWEST}


def give(result: Json, *arguments: Any) -> Json:
    return result


def make_tool(kind: type[OfferedTool], name: str, result: Json) -> OfferedTool:
    return kind(name, name, f"What {name} is called for.", tool_schemas.AnyArguments, partial(give, result))


TOOLS = [
    *(make_tool(OfferedTool, name, result) for name, result in ANSWERS.items()),
    make_tool(ShownTool, "json_schema_2020_12_tool", ANSWERS["test_simple_text"]),
]
EXTENSION = Extension(surfaces=(routes.surface(PATH, "conformance", TOOLS),))
