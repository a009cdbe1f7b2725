"""POST /api/generate: {"prompt": "…"} → {"image": "data:image/png;base64,…"}, an image that a model makes."""

import os

from connection import connect
from flask import Blueprint, jsonify, request
from flask.typing import ResponseReturnValue

blueprint = Blueprint("generate", __name__)
MODEL = os.environ.get("IMAGE_MODEL", "sandbox-image")


@blueprint.post("/api/generate")
def generate() -> ResponseReturnValue:
    body = request.get_json()
    if not isinstance(body.get("prompt"), str):
        return jsonify(error="The body needs a `prompt`."), 400
    answer = connect().images.generate(model=MODEL, prompt=body["prompt"], response_format="b64_json")
    return jsonify(image=f"data:image/png;base64,{answer.data[0].b64_json}")
