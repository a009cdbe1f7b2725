"""Coding agents: their environments, programs and settings files."""
