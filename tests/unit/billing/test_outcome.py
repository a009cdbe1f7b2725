from support.billing import attempt_at, target

from gateway.billing.context import trail_entry
from gateway.errors import UpstreamRateLimited


def test_attempts_at_one_target_have_entries_of_their_own() -> None:
    place = target()
    good = attempt_at(place, status=200)
    bad = attempt_at(place, status=429, error=UpstreamRateLimited("slow down"))
    entries = [trail_entry(one) for one in (good, bad, good)]
    assert [(entry["status_code"], entry["error_type"], entry["succeeded"]) for entry in entries] == [
        (200, "none", True),
        (429, "rate_limited", False),
        (200, "none", True),
    ]
    assert {(entry["provider"], entry["model"], entry["apiKeyHash"]) for entry in entries} == {("mock", "m-1", "ident")}


def test_an_own_key_is_named_by_its_id_and_label() -> None:
    entry = trail_entry(attempt_at(target("byok"), status=200))
    assert (entry["credentialSource"], entry["providerKeyId"], entry["providerKeyLabel"]) == ("byok", "ident", "")
