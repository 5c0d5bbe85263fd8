"""Signals that arrive while the main thread waits for them."""

import subprocess
import sys

from tests.commands import BEGIN_S, ROOT

ROUNDS = """
import signal, subprocess, sys
from ga3c.training.interrupts import Interrupts

SEND = '''
import os, random, time
while True:
    os.kill(os.getppid(), 15)
    time.sleep(random.uniform(0, 5e-4))
'''
interrupts = Interrupts()
interrupts.listen()
sender = subprocess.Popen([sys.executable, "-c", SEND])
for _ in range(1000):
    interrupts = Interrupts()
    interrupts.listen()
    while not interrupts.first.wait(1e-6):
        pass
sender.kill()
sender.wait()
print("heard all")
"""


def test_a_signal_handler_never_deadlocks_the_thread_that_it_interrupts() -> None:
    """A handler that waited for a lock of the thread that it interrupts would never return."""
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS], cwd=ROOT, capture_output=True, text=True, timeout=BEGIN_S
    )
    assert done.stdout == "heard all\n", done.stderr
