"""The server under judgment: its command, its directory, and what happens to both.

Owns starting and ending it. Must not know the protocol, nor which server it is.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

from disk import Disk

PLACE = os.path.dirname(os.path.abspath(__file__))


class Gone(Exception):
    """The server has ended by itself, or does not answer."""


def build_shim(scratch):
    """Compiles the shim; without a C compiler, there are no power cuts, full disks and changes of the clock."""
    shim = os.path.join(scratch, "shim.so")
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", shim, os.path.join(PLACE, "shim.c"), "-ldl", "-lpthread"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if done.returncode:
        raise SystemExit(f"cannot compile shim.c: {done.stderr}")
    return shim


class Server:
    def __init__(self, command, scratch, shim, round_name):
        """`command` contains {port}, {dir} if the server stores jobs, and {round} where it needs a new name."""
        self.command, self.shim, self.round = command, shim, round_name
        self.directory = os.path.join(scratch, "dir")
        self.trace, self.flag = os.path.join(scratch, "trace"), os.path.join(scratch, "full")
        self.log, self.clock = os.path.join(scratch, "log"), os.path.join(scratch, "clock")
        self.stores = "{dir}" in command
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        self.disk = self.process = None
        self.full(False)
        self.set_clock(0)

    def start(self):
        environment = dict(os.environ)
        if self.shim:
            environment.update(LD_PRELOAD=self.shim, JUDGE_CLOCK=self.clock)
        if self.shim and self.stores:
            self.disk = Disk(self.directory)
            open(self.trace, "w").close()
            environment.update(JUDGE_DIR=self.directory, JUDGE_TRACE=self.trace, JUDGE_FULL=self.flag)
        names = {"port": self.port, "dir": self.directory, "round": self.round}
        words = [word.format(**names) for word in shlex.split(self.command)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        for _ in range(3000):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.01)
        raise Gone(self.state() or "the server does not listen")

    def state(self):
        """How the server ended, if it has."""
        status = self.process.poll()
        if status is None:
            return ""
        with open(self.log, errors="replace") as log:
            last = log.read().strip().split("\n")[-1]
        return f"status {status}: {last[-160:]}"

    def end(self, how, random=None):
        """Ends the server: `stop` as a service manager does, `kill`, or `power`."""
        self.process.send_signal(signal.SIGTERM if how == "stop" else signal.SIGKILL)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if how == "power":
            self.disk.replay(self.trace)
            self.disk.cut(random)

    def full(self, whether):
        if whether:
            open(self.flag, "w").close()
        elif os.path.exists(self.flag):
            os.unlink(self.flag)

    def set_clock(self, seconds):
        """Sets the server's wall clock that many seconds forward, in place: the server has the file mapped."""
        with open(self.clock, "r+b" if os.path.exists(self.clock) else "wb") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))
