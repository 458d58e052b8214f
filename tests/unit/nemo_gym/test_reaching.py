"""Whether a model's endpoint answers, before anything slow starts (platform.md E5, Better)."""

import contextlib
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rollstream.nemo_gym import reaching
from rollstream.nemo_gym.reaching import UnreachableError, check, wait


class Handler(BaseHTTPRequestHandler):
    seen: list[tuple[str, str | None]]
    hold: threading.Event

    def do_GET(self):
        key = self.headers.get("Authorization") or self.headers.get("api-key")
        self.server.seen.append((self.path, key))
        if "slow" in self.path:
            self.server.hold.wait(30)
        status = {"Bearer right": 200, "right": 200, "Bearer wrong": 401}.get(key, 403)
        self.send_response(404 if "elsewhere" in self.path else status)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(context=None):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen, server.hold = [], threading.Event()
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server, f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.hold.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_each_base_url_is_asked_once_with_the_key():
    with served() as (server, url):
        assert check({"url": [f"{url}/v1", f"{url}/b/v1/"], "api_key": "right"}) is None
        assert check({"url": f"{url}/az", "api_key": "right", "engine": "azure"}) is None
        assert server.seen == [("/v1/models", "Bearer right"), ("/b/v1/models", "Bearer right"), ("/az/models", "right")]
        assert check({"url": f"{url}/elsewhere", "api_key": "x"}) is None  # an engine need not list its models


def test_a_wrong_key_is_said_and_not_shown():
    with served() as (_, url):
        assert check({"url": f"{url}/v1", "api_key": "wrong"}) == f"{url}/v1 refuses the key (HTTP 401): see api_key"
        assert check({"url": f"{url}/v1"}) == f"{url}/v1 forbids this key (HTTP 403): see api_key"


def test_nothing_there_and_what_is_no_url_are_unreachable():
    for url in ("http://127.0.0.1:9/v1", "http://no.such.host.invalid/v1", "http://[bad/v1", "h\0st"):
        with pytest.raises(UnreachableError, match="does not answer"):
            check({"url": url, "api_key": "secret-key"})


def test_an_endpoint_that_never_answers_is_given_up():
    with served() as (_, url), pytest.raises(UnreachableError, match="ReadTimeout"):
        check({"url": f"{url}/slow", "api_key": "right"}, timeout_s=0.2)


def test_a_certificate_that_nobody_signed_is_refused(tmp_path):
    key, cert = tmp_path / "k.pem", tmp_path / "c.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    subprocess.run(
        [*command, "-subj", "/CN=127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=30
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with served(context) as (_, url), pytest.raises(UnreachableError, match="certificate"):
        check({"url": f"{url}/v1", "api_key": "right"})


def test_a_scripted_model_needs_no_endpoint():
    assert check({"url": "scripted"}) is None
    assert check({}) is None


def test_e3_waiting_ends_when_it_answers_or_in_time(monkeypatch):
    clock = [0.0]
    answers = [UnreachableError("http://h does not answer"), UnreachableError("http://h does not answer"), None]

    def scripted(_):
        found = answers.pop(0)
        if found is not None:
            raise found

    monkeypatch.setattr(reaching, "check", scripted)
    monkeypatch.setattr(reaching.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(reaching.time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))
    said = []
    assert wait({}, 600, said.append) is None
    assert said == ["http://h does not answer; waiting up to 600 s (model_endpoint_readiness_timeout_seconds)"]
    answers[:] = [UnreachableError("http://h does not answer")] * 100
    assert wait({}, 3, said.append) == "http://h does not answer"
    assert clock[0] == pytest.approx(5.0)
