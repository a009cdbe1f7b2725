"""The gateway protocol of coding agents: managed settings, sign-in, usage and telemetry."""
