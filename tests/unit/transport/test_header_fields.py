from gateway.transport.connections import read_fields

HEAD = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Type:t\xe9xt \t\r\nx-a: \t2:3\r\nx-b:\r\n\r\n"


def test_header_fields_are_read_by_lower_case_name_and_joined_when_repeated():
    assert read_fields(HEAD) == {"x-a": "1, 2:3", "content-type": "t\xe9xt", "x-b": ""}


def test_body_behind_the_head_is_no_field():
    assert read_fields(b"HTTP/1.1 200 OK\r\nx-a: 1\r\n\r\nx-b: 2\r\n\r\n") == {"x-a": "1"}


def test_head_without_fields_has_none():
    assert read_fields(b"HTTP/1.1 200 OK\r\n\r\n") == {}


def test_fields_of_which_none_is_repeated_are_read_alike():
    assert read_fields(b"HTTP/1.1 200 OK\r\nX-A:1\r\nx-b: 2 \r\n\r\n{}") == {"x-a": "1", "x-b": "2"}
