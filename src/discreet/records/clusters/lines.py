"""Lines to the processes that hold parts on Spark's executors: one message to each for a question, without a job.

A process calls the driver when a task of the fit runs in it, and answers in a thread from then on. Both sides prove
that they know a secret, which came with the task. A line that breaks is no loss: its parts are asked by a job. What
goes over a line is not encrypted, so there are none where Spark is told to secure its own connections.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Client, Listener
from typing import Any, NamedTuple

_PATIENCE = 3.0  # seconds to reach the driver
_SECURED = (
    "spark.authenticate",
    "spark.network.crypto.enabled",
    "spark.io.encryption.enabled",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
)


class Call(NamedTuple):
    """Where the driver listens, and what proves that a call is meant."""

    host: str
    port: int
    secret: bytes


class Lines:
    """The driver's side.

    Attributes
    ----------
    call : what tasks need to call.
    known : processes that ever called.
    """

    def __init__(self, host: str, bind: str) -> None:
        secret = os.urandom(32)
        self._listener = Listener((bind, 0), backlog=64, authkey=secret)
        self.call = Call(host, int(self._listener.address[1]), secret)
        self._open: dict[bytes, Any] = {}
        self.known: set[bytes] = set()
        self._number = 0  # of the latest question
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @staticmethod
    def of(settings: Any) -> Lines | None:
        """Lines for a Spark context with these settings; None if its connections are to be secured by Spark."""
        host = settings.get("spark.driver.host", None)
        # Spark takes "TRUE" and Python's "True" as well.
        if host is None or any(settings.get(name, "").strip().lower() == "true" for name in _SECURED):
            return None
        try:
            return Lines(host, settings.get("spark.driver.bindAddress", host))
        except OSError:
            return None

    def _accept(self) -> None:
        while not self._closed:
            try:
                line = self._listener.accept()
                _notice_silence(line.fileno())
                process = line.recv_bytes(64)
                self._open[process] = line
                self.known.add(process)
            except Exception:  # of somebody who does not know the secret, or hung up
                time.sleep(0.01)
        self._listener.close()

    @property
    def processes(self) -> list[bytes]:
        """Those that can be asked."""
        return list(self._open)

    def asked(
        self,
        questions: Mapping[bytes, Sequence[Any]],
        message: Any,
        meanwhile: Callable[[], None] = lambda: None,
        pause: float = 20.0,
    ) -> list[Any]:
        """What processes answer to a message about some parts each; nothing if one of them cannot be reached.

        Every ``pause`` seconds without an answer ``meanwhile`` is called.
        """
        from pyspark import cloudpickle

        lines = {process: line for process in questions if (line := self._open.get(process)) is not None}
        if len(lines) < len(questions):
            return []
        told = cloudpickle.dumps(message)
        self._number += 1
        for process, line in lines.items():
            self._try(process, line.send_bytes, pickle.dumps((self._number, told, list(questions[process]))))
        given: list[Any] = []
        for process, line in lines.items():  # all of them, so that no answer is left for the next question
            while process in self._open and self._try(process, line.poll, pause) is False:
                meanwhile()
            if process in self._open and (answer := self._try(process, line.recv_bytes)) is not None:
                number, found = pickle.loads(answer)
                if number != self._number:  # an earlier question ended before all answers were read
                    self._open.pop(process).close()
                    continue
                given += found or []
        return given

    def _try(self, process: bytes, work: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return work(*arguments)
        except (OSError, EOFError):
            self._open.pop(process, None)
            return None

    def close(self) -> None:
        """Hang up."""
        self._closed = True
        with contextlib.suppress(OSError):  # wakes the thread that waits for calls
            socket.create_connection(self._listener.address, _PATIENCE).close()
        for line in list(self._open.values()):
            line.close()
        self._open.clear()


_mine: tuple[int, bytes] = 0, b""
_called: set[Call] = set()


def me() -> bytes:
    """The name of this process."""
    global _mine
    if _mine[0] != os.getpid():  # forked
        _mine = os.getpid(), os.urandom(8)
        _called.clear()
    return _mine[1]


def answer_calls(call: Call, answer: Callable[[Any, Sequence[Any]], Any]) -> None:
    """Call the driver, unless that was done, and answer its messages in a thread: ``answer(message, parts)``.

    A driver that does not answer the call holds up the thread, and no task.
    """
    name = me()
    if call not in _called:
        _called.add(call)
        threading.Thread(target=_answer, args=(name, call, answer), daemon=True).start()


def _answer(name: bytes, call: Call, answer: Callable[[Any, Sequence[Any]], Any]) -> None:
    try:
        socket.create_connection(call[:2], _PATIENCE).close()
        line = Client(call[:2], authkey=call.secret)
        line.send_bytes(name)
    except Exception:  # it asks by jobs
        return
    with contextlib.suppress(OSError, EOFError):
        while True:
            number, told, parts = pickle.loads(line.recv_bytes())
            try:
                given = pickle.dumps((number, answer(pickle.loads(told), parts)))
            except BaseException:  # a job will tell
                given = pickle.dumps((number, None))
            line.send_bytes(given)
    _called.discard(call)


def _notice_silence(descriptor: int) -> None:
    """Let the system find out that the other machine is gone."""
    with socket.socket(fileno=os.dup(descriptor)) as twin:
        twin.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                twin.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
