import base64

from main import make_image


def test_image_is_written(gateway, monkeypatch, tmp_path):
    monkeypatch.setenv("IMAGE_MODEL", "some-image-model")
    gateway.answers.append({"created": 0, "data": [{"b64_json": base64.b64encode(b"png").decode()}]})
    written = make_image("A tree", tmp_path / "tree.png", "512x512")
    assert written.read_bytes() == b"png"
    path, body = gateway.requests[0]
    assert path == "/v1/images/generations"
    assert (body["model"], body["prompt"], body["size"]) == ("some-image-model", "A tree", "512x512")
