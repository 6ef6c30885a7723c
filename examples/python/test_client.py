"""Tests client.py with the test vectors, and the vectors with a real server: python3 -m unittest test_client"""
import os
import re
import socket
import subprocess
import threading
import unittest

import greenstalk

import client
import play

VECTORS = play.load()


class ClientTest(unittest.TestCase):
    def play(self, title):
        """Starts the server's part of the vector `title`. Returns a client connected to it."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.difference = "not finished"

        def run():
            self.difference = play.play(VECTORS[title], listener)

        self.player = threading.Thread(target=run, daemon=True)
        self.player.start()
        client.HOST, client.PORT = listener.getsockname()
        queue = client.Client()
        self.addCleanup(queue.close)
        return queue

    def ends(self):
        self.player.join(300)
        self.assertIsNone(self.difference)

    def test_a_key(self):
        queue = self.play("idp")

        def put(priority=5):
            return queue.put_tagged("hello", "idp:welcome-7:3600", priority)

        self.assertEqual([put(), put(), put(3)], [1, 1, 1])
        job = queue.reserve()
        self.assertEqual(job.body, b"hello")
        queue.delete(job)
        self.assertEqual([put(), put()], [1, 2])
        self.ends()

    def test_failures(self):
        queue = self.play("fail")
        queue.set_tube("default", "try:2")
        queue.put(b"a", priority=0)
        self.assertEqual(queue.fail(queue.reserve(), "no such host", 0), 0)
        job = queue.reserve()
        self.assertIsNone(queue.fail(job, "no such host", 0))
        with self.assertRaises(greenstalk.NotFoundError):
            queue.fail(job, "no such host", 0)
        self.ends()

    def test_errors_in_tags(self):
        queue = self.play("errors in tags")
        for tags in ("ttl:soon", "idp:k idp:l"):
            with self.assertRaises(greenstalk.BadFormatError):
                queue.put_tagged("hello", tags, 0)
        self.assertEqual(queue.using(), "default")
        self.ends()

    def test_a_difference_is_found(self):
        queue = self.play("fail")
        queue._sock.sendall(b"set-tube default try:3\r\n")
        self.player.join(300)
        self.assertIn("should send b'set-tube default try:2", self.difference)

    def test_the_player_replies_as_the_server_does(self):
        played = 0
        with open(play.VECTORS) as file:
            text = file.read()
        for title, steps in VECTORS.items():
            source = text.split(f"\n== {title}\n")[1].split("\n== ")[0]
            # Skip vectors that need a clock, synchronized clients or incomplete replies.
            if re.search(r"^\+|^\w+\.$|\|\*|<n>|<any>", source, re.MULTILINE):
                continue
            options = re.search(r"^options: (.*)$", source, re.MULTILINE)
            with self.subTest(title):
                self.replay(steps, options[1].split() if options else [])
            played += 1
        self.assertGreater(played, 10)

    def replay(self, steps, options):
        program = os.environ.get("BEANPOLE", "beanpole")
        server = subprocess.Popen(
            [program, "-p", "0", "--ready-fd", "1", "--exit-with-parent", *options],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        host, port = server.stdout.readline().split()[0].rsplit(":", 1)
        clients = {}
        try:
            for name, what, wanted in steps:
                if name not in clients:
                    clients[name] = socket.create_connection((host, int(port)), timeout=300)
                if what == "sends":
                    clients[name].sendall(wanted)
                else:
                    self.assertEqual(play.receive(clients[name], wanted), wanted)
        finally:
            for connection in clients.values():
                connection.close()
            server.kill()
            server.wait()
            server.stdout.close()


if __name__ == "__main__":
    unittest.main()
