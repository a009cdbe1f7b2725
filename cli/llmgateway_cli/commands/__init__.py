"""The commands of the client, one module for each top-level command, imported when the command runs."""
