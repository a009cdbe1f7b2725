import json

from app import create_app


def chunk(text):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    data = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(data)}\n\n".encode()


def test_page_is_served():
    assert b"<form>" in create_app().test_client().get("/").data


def test_answer_is_streamed(gateway, monkeypatch):
    monkeypatch.setenv("CHAT_MODEL", "some-model")
    gateway.answers.append(chunk("Hel") + chunk("lo") + b"data: [DONE]\n\n")
    messages = [{"role": "user", "content": "Hi"}]
    answer = create_app().test_client().post("/api/conversation", json={"messages": messages})
    assert answer.text == "Hello"
    path, body = gateway.requests[0]
    assert path == "/v1/chat/completions"
    assert (body["model"], body["messages"], body["stream"]) == ("some-model", messages, True)
