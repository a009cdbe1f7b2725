from gateway.runtime.line_splitting import split_lines


def test_lines_are_joined_over_pieces_and_blank_ones_left_out():
    pieces = [b"a" * 60, b"b" * 30 + b"\n \n", b"c\n", b"d"]
    assert list(split_lines(pieces, 100)) == [b"a" * 60 + b"b" * 30, b"c", b"d"]


def test_a_stream_is_not_read_on_after_a_line_that_is_too_long():
    pieces = iter([b"a\n", *[b"b" * 60] * 3])
    assert list(split_lines(pieces, 100)) == [b"a", b"b" * 120]
    assert next(pieces)
    assert list(split_lines([b"a\n", b" " * 101, b"\nb"], 100)) == [b"a", b" " * 101]


def test_the_rest_of_a_line_that_is_too_long_can_be_skipped():
    pieces = [b"a\n" + b"b" * 60, b"b" * 60, b"b" * 60, b"b\n\nc", b"\n" + b"d" * 101, b"\n", b"e"]
    assert list(split_lines(pieces, 100, goes_on=True)) == [b"a", b"b" * 120, b"c", b"d" * 101, b"e"]
