"""The analyzer of Microsoft Presidio, as an outside checker of guardrails."""
