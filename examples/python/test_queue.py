"""A separate queue for a Python test suite: python3 -m unittest test_queue (or pytest)."""

import os
import socket
import subprocess
import unittest


class QueueTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = os.environ.get("BEANPOLE", "beanpole")
        cls.server = subprocess.Popen(
            [program, "-p", "0", "--ready-fd", "1", "--exit-with-parent"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # The line is empty if the server did not start.
        host, port = cls.server.stdout.readline().split()[0].rsplit(":", 1)
        cls.address = (host, int(port))

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.wait()
        cls.server.stdout.close()

    def test_a_job_is_delivered(self):
        with socket.create_connection(self.address) as connection, connection.makefile("rwb") as stream:
            stream.write(b"put 0 0 60 5\r\nhello\r\nreserve\r\n")
            stream.flush()
            self.assertEqual(stream.readline(), b"INSERTED 1\r\n")
            self.assertEqual(stream.readline(), b"RESERVED 1 5\r\n")
            self.assertEqual(stream.readline(), b"hello\r\n")


if __name__ == "__main__":
    unittest.main()
