"""Storages for tests: an S3 server that fails when told to, and a folder as of NFS."""

import errno
import io
import json
import logging
import os
import re
import socket
import time
import urllib.request
from collections import Counter
from contextlib import contextmanager
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

#: Settings of Dask for runs on a storage that fails each request at first.
MANY_ATTEMPTS = {"lpe-dask.retries.attempts": 25, "scheduler": "sync"}

#: What a server says, by the status.
ANSWERS = {
    403: ("403 Forbidden", "AccessDenied", "Access Denied"),
    503: ("503 Service Unavailable", "ServiceUnavailable", "Please try again."),
}


class Faults:
    """A WSGI application before that of a server, which answers some requests by itself.

    Attributes
    ----------
    answer : callable
        From method and path of a request to a status; None: the server answers.
    loses : callable
        From method and path of a request that the server has done by then to a status that
        is answered instead, or "connection", which is closed; None: the server answers.
    given : list
        Method, path and status of the requests that were answered here.
    """

    def __init__(self, app):
        self.app = app
        self.repair()
        self.given = []

    def repair(self):
        """Let the server answer all requests again."""
        self.answer = self.loses = lambda method, path: None

    def __call__(self, environ, start_response):
        request = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        status = self.answer(*request)
        if status is not None:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return self._instead(request, status, start_response)
        status = self.loses(*request)
        if status is None:
            return self.app(environ, start_response)
        for _ in self.app(environ, lambda *_: None):
            pass
        if status == "connection":
            self.given.append((*request, status))
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            start_response("200 OK", [])
            return [b"never read"]
        return self._instead(request, status, start_response)

    def _instead(self, request, status, start_response):
        self.given.append((*request, status))
        line, code, message = ANSWERS[status]
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        content = b"" if request[0] == "HEAD" else text
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))]
        start_response(line, headers)
        return [content]

    def fail_first(self, folder):
        """Answer 503 to the first of all equal requests for what is in a folder."""
        seen = set()

        def answer(method, path):
            kind = method, re.sub(r"[0-9a-f]{12,}", "<hex>", path)
            if folder not in path or kind in seen:
                return None
            seen.add(kind)
            return 503

        self.answer = answer


def s3_environment(host, port):
    """Environment with which processes find an S3 server; libraries do not try again."""
    return {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "NO_PROXY": host,
    }


@contextmanager
def _moto():
    """Give a server of moto, its host and its port; libraries keep nothing of it."""
    from moto.server import ThreadedMotoServer  # takes a second
    from s3fs import S3FileSystem

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    S3FileSystem.clear_instance_cache()
    try:
        yield server, host, port
    finally:
        S3FileSystem.clear_instance_cache()
        reset = f"http://{host}:{port}/moto-api/reset"  # its buckets outlive the server
        urllib.request.urlopen(urllib.request.Request(reset, method="POST")).close()
        server.stop()


@contextmanager
def _with_faults(server):
    """Give the `Faults` of a server, which are repaired at the end."""
    faults = server._server.app = Faults(server._server.app)
    try:
        yield faults
    finally:
        faults.repair()


@contextmanager
def s3_server(environment):
    """Give the `Faults` of an S3 server with an empty bucket, which this process finds.

    Libraries below do not try again by themselves. What is put into ``environment`` lets
    other processes find the server.
    """
    with _moto() as (server, host, port), pytest.MonkeyPatch.context() as patch:
        environment |= s3_environment(host, port)
        for name, value in environment.items():
            patch.setenv(name, value)
        fsspec.filesystem("s3").mkdir("bucket")
        with _with_faults(server) as faults:
            yield faults


@contextmanager
def s3_server_with_keys():
    """Give the options that open an S3 server with an empty bucket, and its `Faults`.

    The server refuses all other keys, and the environment of this process has none.
    """
    import boto3
    from moto import settings

    with _moto() as (server, host, port), pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("NO_PROXY", host)
        found = {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"}
        as_root = {"aws_access_key_id": "root", "aws_secret_access_key": "root"} | found
        boto3.client("s3", **as_root).create_bucket(Bucket="bucket")
        users = boto3.client("iam", **as_root)
        users.create_user(UserName="user")
        allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        users.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=policy)
        key = users.create_access_key(UserName="user")["AccessKey"]
        keys = {"key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}
        patch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        with _with_faults(server) as faults:
            yield keys | {"client_kwargs": found}, faults


#: Files of a `StaleFileSystem` that were replaced since they were read.
REPLACED = set()


class _Folder(LocalFileSystem):
    """A local folder under a protocol of its own."""

    cachable = False

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(
            str(path).removeprefix(f"{cls.protocol[0]}://")
        )

    def unstrip_protocol(self, name):
        return f"{self.protocol[0]}://{self._strip_protocol(name)}"


class StaleFileSystem(_Folder):
    """A local folder as NFS shows it to another machine, at ``stale:///path``.

    New names are listed late, and a file that was replaced is stale at the first reading.
    """

    protocol = ("stale",)
    cachable = True

    #: Seconds until a new name is listed.
    lag = 0.5

    def ls(self, path, detail=False, **options):
        entries = super().ls(path, detail=True, **options)
        listed = [e for e in entries if time.time() - _made(e["name"]) >= self.lag]
        return listed if detail else [entry["name"] for entry in listed]

    def mv(self, path1, path2, **options):
        path2 = self._strip_protocol(path2)
        if os.path.exists(path2):
            REPLACED.add(path2)
        super().mv(path1, path2, **options)

    def _open(self, path, mode="rb", **options):
        if "r" in mode and path in REPLACED:
            REPLACED.discard(path)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return super()._open(path, mode, **options)


def _made(path):
    try:
        return os.stat(path).st_ctime
    except FileNotFoundError:  # it was there a moment ago
        return time.time()


class CountingFileSystem(_Folder):
    """A local folder, at ``counting:///path``, that counts what is asked of it."""

    protocol = ("counting",)

    #: How often each file was opened.
    opened: ClassVar[Counter] = Counter()

    def _open(self, path, mode="rb", **options):
        self.opened[os.path.basename(path)] += 1
        return super()._open(path, mode, **options)


class Death(BaseException):
    """The process is killed: nothing that it does after that acts."""


class BreakingFileSystem(_Folder):
    """A local folder, at ``breaking:///path``, of which each change can be made to fail.

    A file is written when it is flushed or closed, a folder removed file by file.

    Attributes
    ----------
    breaks : callable, optional
        From the number of a change, its kind and the path to what happens: it "dies" or the
        disk is "full" in the middle, it "fails", or "fails late", when it is made; None: it
        is made.
    changes : list
        Kind ("make", "write", "move", "remove") and path of those that were begun.
    is_stale : bool
        Whether nothing acts any more.
    """

    protocol = ("breaking",)
    breaks = None
    changes: ClassVar = []
    is_dead = False

    @classmethod
    def repair(cls, breaks=None):
        """Let everything act again, but for what ``breaks`` says, counted from 0."""
        cls.breaks, cls.is_dead = breaks and staticmethod(breaks), False
        cls.changes.clear()

    # What changes

    def makedirs(self, path, exist_ok=False):
        if not self.exists(path):
            self._change("make", path, super().makedirs, path, exist_ok)

    def mv(self, path1, path2, **options):
        self._change("move", path2, super().mv, path1, path2)

    def rm_file(self, path):
        self._look()
        if not os.path.exists(self._strip_protocol(path)):
            raise FileNotFoundError(path)
        self._change("remove", path, super().rm_file, path)

    def rmdir(self, path):
        self._change("remove", path, super().rmdir, path)

    def rm(self, path, recursive=False, maxdepth=None):
        if not self.isdir(path):
            self.rm_file(path)
            return
        for inner in sorted(self.ls(path)):
            self.rm(inner, recursive=True)
        self.rmdir(path)

    def _open(self, path, mode="rb", **options):
        self._look()
        if "r" in mode:
            return super()._open(path, mode, **options)
        if "x" in mode:
            open(self._strip_protocol(path), mode).close()
        return _WrittenAtOnce(self, path)

    def _change(self, kind, path, act, *arguments):
        self._look()
        cls, path = type(self), self._strip_protocol(path)
        breaks = cls.breaks and cls.breaks(len(cls.changes), kind, path)
        cls.changes.append((kind, path))
        if breaks in ("dies", "full") and kind == "write":
            with open(path, "wb") as file:
                file.write(arguments[0][: len(arguments[0]) // 2])
        if breaks == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if breaks == "dies":
            cls.is_dead = True
            raise Death
        if breaks == "fails":
            raise OSError(f"no {kind} of {path}")
        act(*arguments)
        if breaks == "fails late":
            raise OSError(f"no answer to {kind} of {path}")

    # What looks

    def _look(self):
        if self.is_dead:
            raise Death

    def exists(self, path, **options):
        self._look()
        return super().exists(path, **options)

    def isfile(self, path):
        self._look()
        return super().isfile(path)

    def info(self, path, **options):
        self._look()
        return super().info(path, **options)


class _WrittenAtOnce(io.BytesIO):
    """A file of a `BreakingFileSystem` that is being written."""

    def __init__(self, filesystem, path):
        super().__init__()
        self._filesystem, self._path, self._written = filesystem, path, None

    def flush(self):
        if not self.closed and self._written != self.getvalue():
            self._written = self.getvalue()  # also if that fails: it is not tried again
            self._filesystem._change("write", self._path, self._write, self._written)

    def _write(self, content):
        with open(self._filesystem._strip_protocol(self._path), "wb") as file:
            file.write(content)

    def close(self):
        try:
            self.flush()
        finally:
            super().close()
