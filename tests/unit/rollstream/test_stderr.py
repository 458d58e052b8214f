"""A log line that cannot be written is lost; the work that wanted to write it is not."""

import io
import sys

import structlog

from rollstream.stderr import StandardError


def test_the_stream_is_the_one_of_the_moment_and_a_closed_one_is_no_error(monkeypatch):
    log = structlog.PrintLogger(StandardError())
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    log.msg("one")
    monkeypatch.setattr(sys, "stderr", second)
    log.msg("two")
    assert (first.getvalue(), second.getvalue()) == ("one\n", "two\n")
    second.close()
    log.msg("three")
    monkeypatch.setattr(sys, "stderr", None)
    log.msg("four")
