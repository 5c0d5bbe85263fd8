"""Runs work that uses the tensor framework in a process of its own."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from ga3c import backend
from ga3c.measuring.parts import running


def in_own_process(intra_op_threads: int, work: Callable[..., Any], *given: Any) -> Any:
    """The result of `work` in a process of its own, which frees all its memory when it ends.

    An exception in this process, such as KeyboardInterrupt, ends the other one at once. Raises what
    `work` raises, and RuntimeError if the process ends without a result.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])  # the framework is imported once
    resource_tracker.ensure_running()  # its start unblocks SIGINT, so it comes first
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    forkserver.ensure_running()  # it and its children inherit this: only we handle Ctrl-C
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    receiving, sending = context.Pipe(duplex=False)
    arguments = (sending, intra_op_threads, work, *given)
    with running(context.Process(target=_send, args=arguments)):
        sending.close()
        try:
            result, error = receiving.recv()
        except EOFError as ended:
            raise RuntimeError(f"{work.__name__.strip('_')} {given}: its process died") from ended
    if error is not None:
        raise error
    return result


def _send(
    sending: Connection, intra_op_threads: int, work: Callable[..., Any], *given: Any
) -> None:
    """Send the result of `work`, or the exception that it raises."""
    end_with_parent()
    try:
        backend.configure(intra_op_threads, 0)
        sending.send((work(*given), None))
    except Exception as error:
        sending.send((None, error))


def end_with_parent() -> None:
    """Have this process end once its parent has ended, which cannot say so if it was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
