"""Fetching an environment's data from the Hugging Face Hub.

Owns which files of a data set are taken, the bounds, and how they get onto the disk. Invariants: what a server sends never
becomes a path (files are named by the environment's manifest), nothing is larger than announced and allowed, every file has
the checksum that the data set announces, and a folder holds all of the files or is as it was.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from schemas.errors import InfrastructureError, RolloutError

if TYPE_CHECKING:
    import httpx

    from environments.hub_data import HubData

MAX_LISTED = 20_000
"""Files of a data set that are looked at; the listing comes in pages without an announced end."""

TRIES = 3
DEADLINE_S = 3_600.0
"""For all files together."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Where to fetch from. `endpoint` None is the Hub's own, or what `HF_ENDPOINT` says."""

    repo: str
    revision: str
    endpoint: str | None = None

    @property
    def token(self) -> bool | None:
        """The stored token may be sent, but never to a server that was named for this call and would get it in the clear."""
        return False if self.endpoint and not self.endpoint.startswith("https://") else None


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of the data set: its path there, the name it gets here, its size in bytes, and its checksum."""

    path: str
    name: str
    size: int
    sha256: str | None
    git_id: str


def fetch(data: HubData, source: Source, folder: Path, report: Callable[[str], None]) -> list[Path]:
    """Fetch the data into `folder`, replacing files of the same names; the files, those with rows last.

    Raises `InfrastructureError` that says what is missing, too large, refused or broken, and leaves `folder` as it was.
    """
    with _told(source):
        revision, files = _listed(data, source)
    _check_sizes(files, data.max_bytes)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with _told(source):
            _download(source, revision, files, scratch, report)
        return _settle(scratch, folder, [file.name for file in files])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _listed(data: HubData, source: Source) -> tuple[str, list[RemoteFile]]:
    """The commit that `revision` names, and the wanted files in it."""
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api = HfApi(endpoint=source.endpoint, token=source.token)
    commit = api.repo_info(source.repo, repo_type="dataset", revision=source.revision, timeout=30).sha or source.revision
    tree = api.list_repo_tree(source.repo, recursive=True, revision=commit, repo_type="dataset")
    entries = [e for e in itertools.islice(tree, MAX_LISTED) if isinstance(e, RepoFile)]
    found = {name: _named(name, entries) for name in (*data.files, *data.rows)}
    missing = [name for name in data.files if found[name] is None]
    if missing:
        raise InfrastructureError(_no_files(missing, source, [e.path for e in entries]), retryable=False)
    return commit, [file for file in found.values() if file is not None]


def _named(name: str, entries: Iterable[Any]) -> RemoteFile | None:
    """The file called `name` that lies highest in the data set."""
    paths = {e.path: e for e in entries if PurePosixPath(e.path).name == name and _inside(e.path)}
    if not paths:
        return None
    entry = paths[min(paths, key=lambda path: (path.count("/"), path))]
    return RemoteFile(entry.path, name, int(entry.size), entry.lfs.sha256 if entry.lfs else None, entry.blob_id)


def _inside(path: str) -> bool:
    """Whether a path stays within the data set's part of the server."""
    parts = path.replace("\\", "/").split("/")
    return not {"", ".", ".."} & set(parts)


def _no_files(missing: Sequence[str], source: Source, there: Sequence[str]) -> str:
    shown = ", ".join(there[:10]) + (" …" if len(there) > 10 else "") or "nothing"  # noqa: PLR2004 - enough to recognise it
    return (
        f"the data set {source.repo} (revision {source.revision}) has no {', '.join(missing)}; it has {shown}. "
        "Name a data set that has them with --repo, or put the files into the folder yourself"
    )


def _check_sizes(files: Sequence[RemoteFile], allowed: int) -> None:
    total = sum(file.size for file in files)
    if total > allowed or any(file.size < 0 for file in files):
        raise InfrastructureError(
            f"the files have {total:,} bytes together, more than the {allowed:,} allowed", retryable=False
        )


def _download(source: Source, revision: str, files: Sequence[RemoteFile], scratch: Path, report: Callable[[str], None]) -> None:
    import httpx
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public by its documentation

    deadline = time.monotonic() + DEADLINE_S
    headers = build_hf_headers(token=source.token, library_name="rollstream")
    with httpx.Client(headers=headers, follow_redirects=True, timeout=httpx.Timeout(60.0, connect=15.0)) as client:
        for file in files:
            report(f"fetching {file.name} ({file.size:,} bytes)")
            _download_one(client, _url(source, revision, file), file, scratch / file.name, deadline)


def _url(source: Source, revision: str, file: RemoteFile) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(source.repo, file.path, repo_type="dataset", revision=revision, endpoint=source.endpoint)


def _download_one(client: httpx.Client, url: str, file: RemoteFile, target: Path, deadline: float) -> None:
    import httpx

    for attempt in range(1, TRIES + 1):
        try:
            with client.stream("GET", url) as reply:
                reply.raise_for_status()
                _save(reply.iter_bytes(_CHUNK), file, target, deadline)
            return
        except (httpx.TransportError, httpx.HTTPStatusError) as e:
            broken = not isinstance(e, httpx.HTTPStatusError) or e.response.is_server_error
            if attempt == TRIES or not broken:
                raise


def _save(chunks: Iterator[bytes], file: RemoteFile, target: Path, deadline: float) -> None:
    """Write a file and check its size and checksum while it comes in."""
    sha256, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    size = 0
    with target.open("wb") as out:
        for chunk in chunks:
            size += len(chunk)
            if size > file.size:
                break
            if time.monotonic() > deadline:
                raise InfrastructureError(f"{file.name} did not come within {DEADLINE_S:,.0f} s")
            sha256.update(chunk)
            git.update(chunk)
            out.write(chunk)
    if size != file.size:
        what = "more" if size > file.size else f"{size:,}"
        raise InfrastructureError(f"{file.name} was to have {file.size:,} bytes and has {what}")
    if (sha256.hexdigest() != file.sha256) if file.sha256 else (git.hexdigest() != file.git_id):
        raise InfrastructureError(f"{file.name} does not have the checksum that the data set gives for it")


def _settle(scratch: Path, folder: Path, names: Sequence[str]) -> list[Path]:
    """Put complete files in place; in a folder that is there, its other files stay."""
    if not folder.exists():
        scratch.chmod(0o755)
        scratch.rename(folder)
    else:
        for name in names:
            (scratch / name).replace(folder / name)
    return [folder / name for name in names]


@contextmanager
def _told(source: Source) -> Iterator[None]:
    """What the Hub's client raises, as one line that says what to do; errors of this machine's files pass."""
    from huggingface_hub import errors

    try:
        yield
    except RolloutError:
        raise
    except errors.GatedRepoError as e:
        raise _failure(source, "asks for an agreement: accept it on the data set's page, then log in (hf auth login)") from e
    except errors.RevisionNotFoundError as e:
        raise _failure(source, f"has no revision {source.revision}: name another with --revision") from e
    except errors.HFValidationError as e:
        raise _failure(source, f"is no name of a data set: {_line(e)}") from e
    except Exception as e:
        if isinstance(e, OSError) and e.filename:
            raise
        if isinstance(e, errors.RepositoryNotFoundError) or _status(e) in (401, 403):
            raise _failure(source, "does not exist, or is private: log in (hf auth login), or name another with --repo") from e
        # Versions of the Hub's client differ in the HTTP library whose errors they let through.
        raise _failure(source, f"cannot be had: {type(e).__name__}: {_line(e)}") from e


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _failure(source: Source, what: str) -> InfrastructureError:
    return InfrastructureError(f"the data set {source.repo} {what}")
