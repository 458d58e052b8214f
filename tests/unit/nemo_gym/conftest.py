import pytest

from environments.own import VARIABLE
from environments.registry import Registry
from rollstream.nemo_gym.calls import new_call, old_call
from rollstream.nemo_gym.doing import do
from rollstream.nemo_gym.resolving import resolve


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """A folder of its own, and variables of neither this machine nor another test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", "")
    import os

    before = dict(os.environ)
    for name in [n for n in before if n.startswith("ROLLSTREAM_")]:
        monkeypatch.delenv(name)
    kept = dict(os.environ)
    yield
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    assert VARIABLE not in os.environ


@pytest.fixture(scope="session")
def shipped_registry():
    return Registry.load({})


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def resolved():
    """`resolved("--config", "a.yaml", "+key=value")`: the configuration of such a call."""
    return lambda *arguments: resolve(new_call(["env", "resolve", *arguments]))


@pytest.fixture
def done(capsys):
    """`done("ng_run", …)`: (what ran or the exit code, lines for people, standard output)."""

    def done(program, *arguments):
        said, ran = [], []
        call = new_call(arguments) if program == "gym" else old_call(program, arguments)
        code = do(call, said.append, lambda argv: ran.append(argv) or 0)
        return (ran[0] if ran else code), said, capsys.readouterr().out

    return done


POLICY = "policy_base_url: scripted\npolicy_api_key: sk-policy-secret\npolicy_model_name: scripted\n"
