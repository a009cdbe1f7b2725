"""Runs the client as `python -m llmgateway_cli`."""

from llmgateway_cli.main import entry

if __name__ == "__main__":
    entry()
