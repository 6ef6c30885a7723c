"""The tested server: its command, its directory and its faults.

Owns starting and stopping the server. Must not depend on the protocol or on a particular server."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

from disk import Disk

# The faults that need the shim.
SHIMMED = ("power", "full", "clock")
PLACE = os.path.dirname(os.path.abspath(__file__))


class Gone(Exception):
    """The server has exited by itself, or does not reply."""


def build_shim(scratch):
    """Compiles the shim. Returns `None` without a C compiler."""
    shim = os.path.join(scratch, "shim.so")
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", shim, os.path.join(PLACE, "shim.c"), "-ldl", "-lpthread"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if done.returncode:
        print(f"cannot compile shim.c: {done.stderr}", file=sys.stderr)
        raise SystemExit(2)
    return shim


class Member:
    """A process with its own port and directory."""

    def __init__(self, scratch, node):
        self.node, self.log = node, os.path.join(scratch, f"log-{node}")
        self.directory, self.trace = os.path.join(scratch, f"dir-{node}"), os.path.join(scratch, f"trace-{node}")
        self.busy = os.path.join(scratch, f"busy-{node}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        self.disk = self.process = None

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def accepts(self):
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False


class Server:
    def __init__(self, command, scratch, shim, round_name, faults=()):
        """Stores the configuration of a server. `command` can contain {port}, {dir} if the server stores jobs,
        {round} for a name that is different in each round, and {node} for two servers, only one of which is active.
        `faults` is the list of faults of all rounds, from which a fault is removed if it cannot be tested."""
        self.command, self.shim, self.round, self.faults = command, shim, round_name, faults
        self.flags = {name: os.path.join(scratch, name) for name in ("full", "slow")}
        self.clock = os.path.join(scratch, "clock")
        self.stores = "{dir}" in command
        self.members = [Member(scratch, node) for node in ("ab" if "{node}" in command else "a")]
        self.active = self.members[0]
        for name in self.flags:
            self.set_flag(name, False)
        self.set_clock(0)

    @property
    def port(self):
        return self.active.port

    def launch(self, member):
        environment = dict(os.environ)
        if self.shim:
            environment.update(LD_PRELOAD=self.shim, JUDGE_CLOCK=self.clock)
        if self.shim and self.stores:
            member.disk = Disk(member.directory)
            open(member.trace, "w").close()
            with open(member.busy, "wb") as file:
                file.write(bytes(8))
            environment.update(JUDGE_DIR=member.directory, JUDGE_TRACE=member.trace, JUDGE_BUSY=member.busy)
            environment.update(JUDGE_FULL=self.flags["full"], JUDGE_SLOW=self.flags["slow"])
        names = {"port": member.port, "dir": member.directory, "round": self.round, "node": member.node}
        words = [word.format(**names) for word in shlex.split(self.command)]
        with open(member.log, "ab") as log:
            member.process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)

    def start(self):
        """Starts the members that are not running. Waits until one of them accepts clients."""
        for member in self.members:
            if not member.runs():
                self.launch(member)
        for _ in range(3000):
            for member in self.members:
                if member.accepts():
                    self.active = member
                    if self.shim and not self.is_loaded(member):
                        self.drop_faults("the server runs without the shim, as a static program does")
                    return
            if not any(member.runs() for member in self.members):
                break
            time.sleep(0.01)
        raise Gone(self.state() or "the server does not listen")

    def state(self):
        """Returns a description of the server's exit, or an empty string if the server runs."""
        status = self.active.process.poll()
        if status is None:
            return ""
        with open(self.active.log, errors="replace") as log:
            last = log.read().strip().split("\n")[-1]
        return f"status {status}: {last[-160:]}"

    def drop_faults(self, reason):
        """Removes the faults that need the shim, for the rest of the run."""
        dropped = [fault for fault in self.faults if fault in SHIMMED]
        if dropped:
            self.faults[:] = [fault for fault in self.faults if fault not in SHIMMED]
            print(f"cannot test {', '.join(dropped)}: {reason}", flush=True)

    def is_loaded(self, member):
        """Returns `False` if the process certainly runs without the shim, such as a static program."""
        try:
            with open(f"/proc/{member.process.pid}/maps") as maps:
                return self.shim in maps.read()
        except OSError:
            return True

    def sees_writes(self, member):
        """Reads the records of the shim. Returns `False` if the records do not explain the files. A process can be
        killed between a change and its record, which also causes a difference."""
        member.disk.replay(member.trace)
        with open(member.busy, "rb") as file:
            return any(file.read()) or member.disk.matches()

    def end(self, how, random=None):
        """Ends the active member. `how` is `stop` for SIGTERM, `kill`, or `power`. Returns how the member was ended: if
        the shim does not see the server's writes, a power failure cannot be simulated, and the directory remains."""
        process = self.active.process
        process.send_signal(signal.SIGTERM if how == "stop" else signal.SIGKILL)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self.active.disk:
            if not self.sees_writes(self.active):
                self.drop_faults("the shim does not see the server's writes")
                return "kill" if how == "power" else how
            if how == "power":
                self.active.disk.cut(random)
        return how

    def end_all(self):
        for member in self.members:
            if member.process:
                member.process.kill()
                member.process.wait()

    def set_flag(self, name, whether):
        """Sets whether the disk counts as `full` or as `slow`."""
        if whether:
            open(self.flags[name], "w").close()
        elif os.path.exists(self.flags[name]):
            os.unlink(self.flags[name])

    def set_clock(self, seconds):
        """Sets the server's wall clock forward by a number of seconds. Overwrites the file in place, because the server
        has mapped the file into memory."""
        with open(self.clock, "r+b" if os.path.exists(self.clock) else "wb") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))
