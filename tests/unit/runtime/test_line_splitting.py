from gateway.runtime.line_splitting import split_lines


def test_lines_are_joined_over_pieces_and_blank_ones_left_out():
    pieces = [b"a" * 60, b"b" * 30 + b"\n \n", b"c\n", b"d"]
    assert list(split_lines(pieces, 100)) == [b"a" * 60 + b"b" * 30, b"c", b"d"]


def test_a_stream_is_not_read_on_after_a_line_that_is_too_long():
    pieces = iter([b"a\n", *[b"b" * 60] * 3])
    assert list(split_lines(pieces, 100)) == [b"a", b"b" * 120]
    assert next(pieces)
    assert list(split_lines([b"a\n", b" " * 101, b"\nb"], 100)) == [b"a", b" " * 101]
