import pytest

from gateway.media import pdf_reader


@pytest.fixture(autouse=True)
def patient_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not give up reading a PDF while the machine is busy."""
    monkeypatch.setattr(pdf_reader, "MAX_DURATION_S", 60.0)
