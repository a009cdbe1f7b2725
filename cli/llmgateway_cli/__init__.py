"""The command-line client of an LLM gateway."""

__version__ = "2.0.0"
