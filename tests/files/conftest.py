"""A reader of small texts."""

import pytest

from halfseen.files.tables import read_table


@pytest.fixture
def read(tmp_path):
    def read(text, **options):
        (tmp_path / "in.csv").write_text(text, encoding="utf-8")
        return read_table(str(tmp_path / "in.csv"), **options)

    return read
