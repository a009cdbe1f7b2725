"""Lakera Guard, as an outside checker of guardrails."""
