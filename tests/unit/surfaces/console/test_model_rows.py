from gateway.surfaces.console.model_rows import list_prices


def test_prices_of_tokens_are_shown_by_the_million_and_others_by_the_unit() -> None:
    prices = {"prompt": "0.0000025", "completion": "0.00001", "request": "0.01", "image_tool_text": "0.000005"}
    shown = [(price, meaning.split()[:2]) for price, meaning in list_prices(prices)]
    tokens = ["1M", "tokens"]
    assert shown == [("$2.50", tokens), ("$10.00", tokens), ("$0.01", ["call"]), ("$5.00", tokens)]
