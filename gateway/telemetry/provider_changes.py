"""Reports cooldowns of providers and credentials as state changes, in words for operators."""

from gateway.clock import Clock
from gateway.configuration.settings import MANAGE
from gateway.routing.cooldowns import POLICIES
from gateway.runtime.state_changes import INFO, WARNING, StateChange, StateLog

# A cooldown that begins this soon after the last one is the same incident and is not reported again.
SAME_INCIDENT_S = 60.0
MAX_ENDED = 10_000
CREDENTIAL_REFUSED = "credential.refused"
REMEDIES = {
    "refused": "check the key, its rights and its funding at the provider; set another key with "
    f"LLM_<PROVIDER>_API_KEY and a restart, or with {MANAGE} provider-keys add",
    "unreachable": "check the provider's address, DNS and the outgoing network",
    "failing": "see the provider's status page; requests go to other providers meanwhile, where there are any",
    "limited": "ask the provider for a higher rate, or add a key or a provider for this model",
}


class ProviderChanges:
    """Reports cooldowns; called at the beginning and end of every cooldown (routing.cooldowns.Cooldowns)."""

    def __init__(self, states: StateLog, clock: Clock) -> None:
        self._states = states
        self._clock = clock
        self._ended: dict[str, float] = {}

    def __call__(self, key: str, kind: str, seconds: float, organization: str) -> None:
        """Report that `key` is cooling down for `seconds` after a failure of `kind`, or works again ("").

        It concerns only `organization` ("": all callers).
        """
        target, _, credential = key.partition("@")[0].partition("#")
        provider = target.partition("/")[0].partition(":")[0]
        facts: dict[str, object] = {"provider": provider}
        if "/" in target:
            facts["model"] = target
        if credential:
            facts["credential"] = credential
        if organization:
            facts["organization"] = organization
        subject = f"provider {key}"
        if not kind:
            self._back(subject, target, facts)
            return
        if self._ended.get(subject, float("-inf")) > self._clock.monotonic() - SAME_INCIDENT_S:
            return
        name = f"credential {credential} of {target}" if credential else target
        event = CREDENTIAL_REFUSED if credential and kind == "refused" else "provider.resting"
        message = f"{name} is cooling down for {seconds:.0f} s: {POLICIES[kind].text}"
        level = INFO if kind == "limited" else WARNING
        facts |= {"reason": kind, "seconds": round(seconds)}
        self._states.fire(StateChange(event, subject, message, level, REMEDIES[kind], facts))

    def _back(self, subject: str, target: str, facts: dict[str, object]) -> None:
        before = self._states.firing(subject)
        if not before:
            return
        if len(self._ended) > MAX_ENDED:
            self._ended.clear()
        self._ended[subject] = self._clock.monotonic()
        event = "credential.back" if before == CREDENTIAL_REFUSED else "provider.back"
        self._states.resolve(StateChange(event, subject, f"{target} answers again", INFO, facts=facts))
