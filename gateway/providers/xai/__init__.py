"""xAI's formats for videos; its chat uses the OpenAI format."""
