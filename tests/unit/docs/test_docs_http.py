"""docs/http.md: its commands and programs run as they stand, and print what it shows (platform.md H, I1, I5)."""

import re

import pytest
from support.examples import ROOT, Session, blocks, missing

from rollstream.front.app import HEADS
from rollstream.front.environment_routes import OWN

PAGE = "docs/http.md"


@pytest.mark.timeout(120)
def test_the_examples_run_against_the_front(tmp_path):
    printed = Session(tmp_path, {}, "no-broker").run(blocks(PAGE, "session"), timeout_s=110)
    said, shown = "", 0
    for block in blocks(PAGE):
        if block.kind == "session":
            said += printed[block.line]
        elif block.kind == "output":
            assert missing(block.text, said) == [], f"{block} shows what was not printed:\n{said}"
            said, shown = "", shown + 1
    assert shown == 4


def test_every_route_is_in_the_table():
    text = (ROOT / PAGE).read_text()
    named = set(re.findall(r"`(?:POST|GET) /(?:NAME/)?([\w.]+)", text))
    swagger = {"openapi.json", "redoc"}
    assert {*OWN, *HEADS} - swagger == named - {"TOOL"}
