#!/usr/bin/env python3
"""Runs one of gear's functional tests with another server instead of gear's own server.

    gearman_gear_suite.py list              prints the names of the tests
    gearman_gear_suite.py TEST SERVER       runs a test; SERVER is gearmand, or a program with the same options
"""

import socket
import subprocess
import sys
import time
import unittest

import gear
from gear.tests import test_functional


class Server:
    """Implements the methods of gear.Server that the tests use, for a server process started by each test."""

    program = None

    def __init__(self, port, key=None, certificate=None, ca=None):
        if key:
            raise unittest.SkipTest("the server has no TLS")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [Server.program, "-L", "127.0.0.1", "-p", str(self.port), "-l", "none"], stderr=subprocess.DEVNULL
        )
        end = time.time() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.time() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.02)

    @property
    def normal_queue(self):
        """Returns a list with one element for each waiting job of normal priority. The tests use only the list's
        length."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(b"prioritystatus\n")
            text = b""
            while not (text == b".\n" or text.endswith(b"\n.\n")):
                text += connection.recv(65536)
        lines = text.decode().splitlines()[:-1]
        return [None] * sum(int(line.split("\t")[2]) for line in lines)


def tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests(test)
        else:
            yield test


def main():
    gear.Server = Server
    suite = unittest.TestSuite()
    for case in (test_functional.TestFunctional, test_functional.TestFunctionalText):
        for test in unittest.defaultTestLoader.loadTestsFromTestCase(case):
            # With TLS, the tests would check only gear's own server.
            test.ssl = False
            suite.addTest(test)
    if sys.argv[1:] == ["list"]:
        print("\n".join(test.id().rsplit(".", 2)[1] + "." + test.id().rsplit(".", 1)[1] for test in tests(suite)))
        return 0
    name, Server.program = sys.argv[1:]
    chosen = [test for test in tests(suite) if test.id().endswith("." + name)]
    started = []
    init = Server.__init__
    Server.__init__ = lambda self, *rest: (started.append(self), init(self, *rest))[1]
    try:
        result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(chosen))
    finally:
        for server in started:
            if hasattr(server, "process"):
                server.process.kill()
    return 0 if result.wasSuccessful() and result.testsRun == 1 else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Exits without waiting for gear's threads, which never end.
    import os

    os._exit(code)
