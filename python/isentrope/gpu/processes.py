"""Answers items in processes of their own, one of which may crash without the others."""

from __future__ import annotations

import collections
import multiprocessing
import queue
import signal
import threading
from collections.abc import Callable, Iterable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """An item and what `work` returned for it, or why its process ended instead."""

    item: Any
    value: Any
    crash: str = ""


def always() -> bool:
    return True


class Processes:
    """Calls work(item) for each item in `count` spawned processes, each of which has called start(*arguments).

    A process that ends before it answers costs the item that it had, and another process takes its place. One is also
    replaced after an answer if `usable` returns False there. Ctrl-C reaches this process only, which ends the others
    as it leaves the context.
    """

    def __init__(
        self, count: int, work: Callable[[Any], Any], items: Iterable[Any], start: Callable[..., Any], *arguments: Any,
        usable: Callable[[], bool] = always,
    ) -> None:  # fmt: skip
        self._items = collections.deque(items)
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._started_with = work, usable, start, arguments
        self._running: dict[threading.Thread, Any] = {}
        self._over = False
        self._threads = [threading.Thread(target=self._feed, daemon=True) for _ in range(min(count, len(self._items)))]

    def __enter__(self) -> Processes:
        # Starting it later would undo the mask of a thread that blocks Ctrl-C.
        resource_tracker.ensure_running()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._over = True
        for process in list(self._running.values()):
            process.kill()
        for thread in self._threads:
            thread.join()

    def next(self, seconds: float | None = None) -> Answer:
        """Returns the next answer. Raises TimeoutError if there is none in time, and RuntimeError if processes cannot
        start."""
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None
        if answer.item is None:
            raise RuntimeError(f"a process could not start: {answer.crash}")
        return answer

    def _feed(self) -> None:
        """Runs in a thread for each process: starts it, and sends it one item after the other."""
        # Processes inherit the mask of the thread that starts them.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        connection = None
        while self._items and not self._over:
            if connection is None:
                connection, crash = self._start()
                if crash:
                    self._answers.put(Answer(None, None, crash))
                    return
            try:
                item = self._items.popleft()
            except IndexError:
                break
            try:
                connection.send(item)
                value, usable = connection.recv()
                self._answers.put(Answer(item, value))
                connection = connection if usable else None
            except (EOFError, OSError):
                self._answers.put(Answer(item, None, self._ended()))
                connection = None
        if connection is not None:
            connection.close()

    def _start(self) -> tuple[Connection, str]:
        """Returns the connection to a new process, and why it cannot work, or ""."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, *self._started_with), daemon=True)
        process.start()
        there.close()
        self._running[threading.current_thread()] = process
        if self._over:  # __exit__ did not see it
            process.kill()
        try:
            return here, here.recv()
        except (EOFError, OSError):
            return here, self._ended()

    def _ended(self) -> str:
        process = self._running[threading.current_thread()]
        process.join()
        return f"its process ended with status {process.exitcode}"


def _serve(connection: Connection, work: Callable, usable: Callable, start: Callable, arguments: tuple) -> None:
    """Runs in a process: answers items until the connection is closed."""
    try:
        start(*arguments)
        connection.send("")
    except Exception as error:
        connection.send(str(error) or repr(error))
        return
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        value, goes_on = work(item), usable()
        connection.send((value, goes_on))
        if not goes_on:
            return
