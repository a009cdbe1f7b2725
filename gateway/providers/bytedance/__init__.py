"""ByteDance's own formats (BytePlus ModelArk, Volcengine Ark), beside the one of OpenAI that it speaks for chat."""
