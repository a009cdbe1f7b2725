import xml.etree.ElementTree as ElementTree

from bench import publish

ROWS = {
    "direct": {"rps": 90_000.0, "added_p50": 0.0},
    "ferrogw": {"cpu_us": 100.0, "rps": 9_000.0, "pss_mb": 45.0, "added_p50": 400.0},
    "gateway": {"cpu_us": 85.0, "rps": 8_000.0, "pss_mb": 90.0, "added_p50": 900.0},
}
ABOUT = {"commit": "c", "cpu": "A processor", "cores": 2, "python": "3.11.7", "rounds": 3, "seconds": 3.0, "load": 0.4}
ABOUT |= {"load_after": 2.5}
ABOUT |= {"peers": ["ferrogw==1"], "left_out": {"litellm": "no registry at https://example.com"}}


def results() -> dict:
    runs = [{"target": "litellm", "errors": 3}, {"target": "litellm", "errors": 4}, {"target": "gateway", "errors": 0}]
    return {"about": ABOUT, "runs": runs, "phases": {"plain": ROWS, "50-rps": ROWS}}


def test_only_the_part_between_the_markers_is_replaced(tmp_path):
    page, plot = tmp_path / "page.md", tmp_path / "plot.svg"
    page.write_text(f"before\n{publish.BEGIN}\nold figures\n{publish.END}\nafter\n")
    publish.write_page(results(), page, plot)
    publish.write_page(results(), page, plot)
    text = page.read_text()
    assert text.startswith(f"before\n{publish.BEGIN}\n") and text.endswith(f"{publish.END}\nafter\n")
    assert "old figures" not in text and text.count("| gateway |") == 1


def test_the_table_relates_the_gateway_to_the_go_peer_and_its_limits():
    table = publish.write_table(results()["phases"])
    assert "| gateway | 85 | 8,000 | 0.90 | 90 |" in table
    assert "| gateway / ferrogw | 0.85 | 0.89 | 2.25 | 2.00 |" in table
    assert "| limit and target of this ratio | 0.9, 0.7 |  | 1.9, 1.2 |  |" in table
    assert not [line for line in table if line.startswith("| direct")]


def test_the_gateway_on_a_second_interpreter_has_its_own_row_and_ratios():
    phases = {"plain": {**ROWS, "gateway-optimized": {"cpu_us": 75.0, "rps": 9_000.0, "pss_mb": 90.0}}}
    table = publish.write_table(phases)
    assert "| gateway, optimized Python | 75 | 9,000 | 90 |" in table
    assert "| gateway / ferrogw | 0.85 | 0.89 | 2.00 |" in table
    assert "| gateway, optimized Python / ferrogw | 0.75 | 1.00 | 2.00 |" in table
    part = publish.write_part(results() | {"about": {**ABOUT, "optimized": "3.11.2"}})
    assert "the same gateway on Python 3.11.2" in part


def test_a_peer_that_was_left_out_is_named_without_the_registry():
    part = publish.write_part(results())
    assert "could not be installed: litellm." in part and "example.com" not in part
    assert "load of the machine 0.4 before and 2.5 at the end" in part
    assert "or failed: LiteLLM 7." in part


def test_longer_bars_of_the_plot_are_larger_figures():
    plot = ElementTree.fromstring(publish.write_plot(results()["phases"]))
    bars = [float(one.attrib["width"]) for one in plot.iter() if one.attrib.get("x") == str(publish.LABELS)]
    assert len(bars) == 6
    assert bars[0] > bars[1] and bars[2] < bars[3] and bars[4] < bars[5]
