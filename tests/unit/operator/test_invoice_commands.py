"""`reconcile` prints what differs and ends with status 1."""

import json


def test_an_export_without_recorded_calls_differs(run, tmp_path) -> None:
    path = tmp_path / "costs.json"
    bucket = {"start_time": 1_771_200_000, "results": [{"amount": {"value": "2.5", "currency": "usd"}}]}
    path.write_text(json.dumps({"data": [bucket]}))
    output = run("reconcile", "--invoice", str(path), status=1)
    assert "cost" in output and "2.5" in output
    bucket["results"] = [{"amount": {"value": "0", "currency": "usd"}}]
    path.write_text(json.dumps({"data": [bucket]}))
    assert "agree" in run("reconcile", "--invoice", str(path))
