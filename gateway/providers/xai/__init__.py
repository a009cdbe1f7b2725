"""xAI's own formats, beside the one of OpenAI that it speaks for chat."""
