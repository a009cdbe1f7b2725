"""The paths that load balancers and orchestrators request to check the gateway."""

LIVENESS = ("/livez", "/healthz", "/health/liveliness")
READINESS = ("/readyz", "/health/readiness")
PROBE_PATHS = frozenset((*LIVENESS, *READINESS))
