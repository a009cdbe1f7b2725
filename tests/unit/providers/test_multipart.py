from gateway.providers.media_codecs import FormBody


def test_a_name_cannot_end_the_head_of_its_part() -> None:
    form = FormBody([('a"b\r\nc', "value")], [])
    assert b'name="a%22b%0D%0Ac"\r\n\r\nvalue\r\n' in b"".join(form.pieces())
