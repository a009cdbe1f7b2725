"""The paths of every surface that serves chat, with a route in the path where the model stands there."""

CHAT_PATHS = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/fim/completions",
    "/v1/messages",
    "/v1/responses",
    "/v2/chat",
    "/v1/chat",
    "/v1beta/models/dynamic/house:generateContent",
]
GEMINI_BODY = {"contents": [{"role": "user", "parts": [{"text": "Hello."}]}]}
