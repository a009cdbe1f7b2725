"""Azure AI Content Safety, as an outside checker of guardrails."""
