import pytest
from pydantic import ValidationError

from services.models.endpoint import ModelEndpoint


@pytest.mark.parametrize(
    ("text", "base_url", "name"),
    [
        ("http://localhost:8000/v1/my-model", "http://localhost:8000/v1", "my-model"),
        ("http://localhost:8000/v1/org/model-7b", "http://localhost:8000/v1", "org/model-7b"),
        ("https://host/api/v1/meta/x/v1/y", "https://host/api/v1", "meta/x/v1/y"),
        ("http://[::1]:80/v1/m", "http://[::1]:80/v1", "m"),
        ("http://h/v1/a%20b", "http://h/v1", "a b"),
        ("  http://h/v1/m ", "http://h/v1", "m"),
    ],
)
def test_url_and_name_are_parted_at_the_first_v1(text, base_url, name):
    endpoint = ModelEndpoint.parse(text)
    assert (endpoint.base_url, endpoint.name, endpoint.api_key) == (base_url, name, None)
    assert endpoint.responses_url == f"{base_url}/responses"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "scripted",
        "http://h/v1",
        "http://h/v1/",
        "h:80/v1/m",
        "ftp://h/v1/m",
        "http:///v1/m",
        "http://h/v1/m?x=1",
        "http://h/v2/m",
    ],
)
def test_what_names_no_model_is_refused(text):
    with pytest.raises(ValueError):
        ModelEndpoint.parse(text)


def test_a_password_in_the_url_is_refused_and_not_repeated():
    with pytest.raises(ValueError) as e:
        ModelEndpoint.parse("http://me:hunter2@h/v1/m")
    assert "hunter2" not in str(e.value)
    with pytest.raises(ValidationError) as v:
        ModelEndpoint(base_url="http://me:hunter2@h/v1", name="m")
    assert "hunter2" not in str(v.value)


def test_secrets_are_not_shown_but_sent():
    endpoint = ModelEndpoint(base_url="http://h/v1/", name="m", api_key="sk-very-secret", headers={"x-team": "t0psecret"})
    assert "secret" not in repr(endpoint)
    assert "secret" not in endpoint.model_dump_json()
    assert endpoint.request_headers() == {"x-team": "t0psecret", "Authorization": "Bearer sk-very-secret"}


def test_an_own_authorization_header_wins_over_the_key():
    endpoint = ModelEndpoint(base_url="http://h/v1", name="m", api_key="key", headers={"authorization": "Basic abc"})
    assert endpoint.request_headers() == {"authorization": "Basic abc"}


@pytest.mark.parametrize("bad", [{"api_key": "s3cr3t\n"}, {"headers": {"x y": "1"}}, {"headers": {"x": "s3cr3t\r\nb: c"}}])
def test_keys_that_http_cannot_carry_are_refused_at_once(bad):
    with pytest.raises(ValidationError) as e:
        ModelEndpoint(base_url="http://h/v1", name="m", **bad)
    assert "s3cr3t" not in str(e.value)


def test_unbounded_waits_cannot_be_configured():
    for field in ("connect_s", "first_byte_s", "body_s", "call_s"):
        for value in (0, -1, float("inf"), float("nan")):
            with pytest.raises(ValidationError):
                ModelEndpoint(base_url="http://h/v1", name="m", timeouts={field: value})
