"""A strict fake of the images of OpenAI, the Gemini API, Vertex AI's Imagen, xAI, ByteDance and Alibaba.

Requests may have only the members that the packages `openai` and `google-genai` and the other vendors' references have.
Every image is `PIXEL`. `silent`: answers have no usage; `blocked`: a filter refuses every request. For OpenAI, `usage`
is the reported usage, and an answer has at most `most_made` images.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from fakes.server import FakeServer, send_json
from google import genai
from multipart import MultipartParser, parse_options_header
from openai.types import ImageGenCompletedEvent, ImageGenPartialImageEvent, ImagesResponse
from openai.types.image_edit_params import ImageEditParamsBase
from openai.types.image_generate_params import ImageGenerateParamsBase

from gateway.providers.sandbox.images import png

PIXEL = base64.b64encode(png(2, 2, "pixel")).decode()
TEXT_TOKENS, READ_TOKENS, MADE_TOKENS = 9, 323, 1056
GOOGLE_READ, GOOGLE_MADE = 7, 1290
GOOGLE_RATIOS = ("1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9")
XAI_RATIOS = (
    "auto", "1:1", "3:4", "4:3", "9:16", "16:9", "2:3", "3:2", "9:19.5", "19.5:9", "9:20", "20:9", "1:2", "2:1",
)  # fmt: skip


@dataclass
class Recorded:
    path: str
    body: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    problem: str = ""


class FakeImageServices(FakeServer):
    """The services; `calls` are Recorded."""

    base = ""
    silent = False
    usage: dict[str, int] | None = None
    most_made = 100
    blocked = False

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        if environ["PATH_INFO"].startswith("/album/"):
            start("200 OK", [("Content-Type", "application/octet-stream")])
            return iter([base64.b64decode(PIXEL)])
        call, raw = Recorded(environ["PATH_INFO"]), environ["wsgi.input"].read()
        self.calls.append(call)
        kind, options = parse_options_header(environ["CONTENT_TYPE"])
        if kind == "multipart/form-data":
            for part in MultipartParser(BytesIO(raw), options["boundary"], len(raw), strict=True):
                if part.filename is None:
                    call.body[part.name] = part.value
                else:
                    call.files[part.name] = part.raw
        else:
            call.body = json.loads(raw)
        status = self.next_answer(200)
        if status != 200:
            return send_json(start, status, {"error": {"message": "no", "status": "X", "code": status}})
        try:
            if call.body.get("stream") in (True, "true"):
                return self._events(call, start)
            return send_json(start, 200, self._answer(call))
        except AssertionError as error:
            call.problem = str(error)
            return send_json(start, 400, {"error": {"message": f"refused: {error}", "status": "INVALID", "code": 400}})

    def _answer(self, call: Recorded) -> dict[str, Any]:
        if call.path.startswith("/v1/"):
            return self._openai(call)
        if call.path.startswith(("/xai/", "/ark/")):
            known = {"model", "prompt", "response_format", "image", "n", "aspect_ratio", "size"}
            if call.path.startswith("/xai/"):
                known = known - {"size"} | {"images", "resolution"}
                assert call.body.get("aspect_ratio", "auto") in XAI_RATIOS, "ratio"
                images = call.body.get("images", [call.body["image"]] if "image" in call.body else [])
                assert call.path == f"/xai/v1/images/{'edits' if images else 'generations'}", "another address"
                assert all(image.keys() == {"type", "url"} for image in images) and len(images) <= 3, "pictures"
            assert call.body.keys() <= known and call.body["response_format"] == "b64_json", "members"
            return {"data": [{"b64_json": PIXEL}] * int(call.body.get("n", 1))}
        if call.path.startswith("/qwen/"):
            return self._alibaba(call)
        return self._imagen(call.body) if call.path.endswith(":predict") else self._gemini(call.body)

    def _openai(self, call: Recorded) -> dict[str, Any]:
        edits = call.path.endswith("/edits")
        known = (ImageEditParamsBase if edits else ImageGenerateParamsBase).__annotations__.keys()
        assert call.body.keys() <= known | {"stream"}, f"unknown member {call.body.keys() - known}"
        assert "response_format" not in call.body and bool(call.files) is edits, "not for this model"
        count = min(int(call.body.get("n", 1)), self.most_made)
        read = READ_TOKENS * len(call.files)
        usage = {
            "input_tokens": TEXT_TOKENS + read,
            "input_tokens_details": {"text_tokens": TEXT_TOKENS, "image_tokens": read},
            "output_tokens": MADE_TOKENS * count,
            "total_tokens": TEXT_TOKENS + read + MADE_TOKENS * count,
        }
        answer: dict[str, Any] = {"created": 1, "data": [{"b64_json": PIXEL}] * count, "output_format": "png"}
        answer |= {"quality": call.body.get("quality", "medium"), "size": call.body.get("size", "1024x1024")}
        if not self.silent:
            answer["usage"] = self.usage or usage
        if self.usage is None:
            ImagesResponse.model_validate(answer)
        return answer

    def _events(self, call: Recorded, start: Any) -> Iterator[bytes]:
        """Return OpenAI's stream events: the previews, then the image with the usage."""
        whole = self._openai(call)
        kind = "image_edit" if call.files else "image_generation"
        assert int(call.body.get("n", 1)) == 1, "one image"
        shared = {name: whole[name] for name in ("quality", "size", "output_format")}
        shared |= {"b64_json": PIXEL, "created_at": 1, "background": "opaque"}
        events: list[dict[str, Any]] = [
            {"type": f"{kind}.partial_image", "partial_image_index": n, **shared}
            for n in range(int(call.body.get("partial_images", 0)))
        ]
        events.append({"type": f"{kind}.completed", "usage": whole.get("usage"), **shared})
        models = {"partial_image": ImageGenPartialImageEvent, "completed": ImageGenCompletedEvent}
        for event in events:
            if not call.files and not self.silent and self.usage is None:
                models[event["type"].partition(".")[2]].model_validate(event)
        start("200 OK", [("Content-Type", "text/event-stream")])
        return iter([f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events])

    def _alibaba(self, call: Recorded) -> dict[str, Any]:
        assert call.path == "/qwen/api/v1/services/aigc/multimodal-generation/generation", "no such path"
        assert call.body.keys() == {"model", "input", "parameters"} and call.body["input"].keys() == {"messages"}
        (message,) = call.body["input"]["messages"]
        assert message["role"] == "user" and [part for part in message["content"] if "text" in part], "no text"
        parameters = call.body["parameters"]
        assert parameters.keys() <= {"n", "size", "watermark", "prompt_extend", "negative_prompt", "seed"}, "members"
        assert "size" not in parameters or re.fullmatch(r"\d+\*\d+", parameters["size"]), "size"
        content = [{"image": f"{self.address}/album/{n}.png"} for n in range(parameters.get("n", 1))]
        choices = [{"finish_reason": "stop", "message": {"role": "assistant", "content": [part]}} for part in content]
        usage = {"image_count": len(content), "width": 2048, "height": 2048}
        return {"output": {"choices": choices}, "usage": usage, "request_id": "r-1"}

    def _gemini(self, body: dict[str, Any]) -> dict[str, Any]:
        generation = body["generationConfig"]
        config = generation.get("imageConfig", {})
        genai.types.ImageConfig.model_validate(config)
        assert config.get("aspectRatio", "1:1") in GOOGLE_RATIOS, "ratio"
        assert config.get("imageSize", "1K") in ("1K", "2K", "4K"), "size"
        assert generation["responseModalities"] == ["TEXT", "IMAGE"] and body["contents"][0]["parts"][0]["text"], (
            "shape"
        )
        if self.blocked:
            return {"candidates": [{"finishReason": "IMAGE_SAFETY"}], "usageMetadata": {"promptTokenCount": 7}}
        part = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
        answer: dict[str, Any] = {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}
        if not self.silent:
            answer["usageMetadata"] = {
                "promptTokenCount": GOOGLE_READ,
                "candidatesTokenCount": GOOGLE_MADE,
                "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": GOOGLE_MADE}],
                "totalTokenCount": GOOGLE_READ + GOOGLE_MADE,
            }
        return answer

    def _imagen(self, body: dict[str, Any]) -> dict[str, Any]:
        assert set(body) == {"instances", "parameters"} and set(body["instances"][0]) == {"prompt"}, "shape"
        parameters = body["parameters"]
        assert parameters.keys() <= {"sampleCount", "aspectRatio", "sampleImageSize", "personGeneration"}, "parameters"
        assert 1 <= parameters["sampleCount"] <= 4, "count"
        assert parameters.get("aspectRatio", "1:1") in ("1:1", "3:4", "4:3", "16:9", "9:16"), "ratio"
        if self.blocked:
            return {"predictions": [{"raiFilteredReason": "Unable to show generated images."}]}
        row = {"bytesBase64Encoded": PIXEL, "mimeType": "image/png"}
        return {"predictions": [row] * body["parameters"]["sampleCount"]}
