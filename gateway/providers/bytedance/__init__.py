"""ByteDance's formats (BytePlus ModelArk, Volcengine Ark) for videos; its chat uses the OpenAI format."""
