"""Guardrails: what rules look for in the text of requests and answers, and how found values are masked and restored.

The package knows texts and neutral forms only. `gateway/engine/guarding.py` applies it to requests.
"""
