"""Reads a page as a browser would, and fails where its tags do not close."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br"}


class Checker(HTMLParser):
    """Collects tags and attributes, and fails when tags do not close in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def check(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def assert_self_contained(page):
    """Asserts that a page is well formed, loads nothing, links to its own anchors, and shows no NaN."""
    checker = check(page)
    assert "script" not in checker.tags
    assert not {"img", "iframe", "object"} & set(checker.tags)
    assert not re.search(r"https?://|@import|url\(", page)
    links = [value for name, value in checker.attributes if name in ("href", "src")]
    assert all(link.startswith(("#", "data:,")) for link in links)
    anchors = {value for name, value in checker.attributes if name == "id"}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    assert not re.search(r"\b(nan|None|Undefined)\b", "".join(checker.text))
