"""Plays the server's part of a test vector, so that a client library can be tested without a server and without waiting:

    $ python3 play.py idp
    127.0.0.1:40123

The library connects to this address and must send exactly the bytes of the vector. CLIENTS.md describes the format. Steps
in which time passes are skipped. The exit status is 0 after the last step, or 1 at the first difference. Without an argument,
the program prints the titles of all vectors.
"""
import os
import re
import socket
import sys

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/conversations/extensions/vectors.txt")
ESCAPES = {"r": "\r", "n": "\n", "\\": "\\", "s": " ", "t": "\t", "0": "\0"}


def unescape(text):
    value = re.sub(r"\\(x..|.)", lambda found: chr(int(found[1][1:], 16)) if found[1][0] == "x" else ESCAPES[found[1]], text)
    return value.encode("latin-1")


def example(line):
    """Replaces the placeholders whose text differs from run to run. `load` replaces `<len>`, which precedes a body."""
    return line.replace(b"<n>", b"1").replace(b"<any>", b"1")


def load(path=VECTORS):
    """Returns the steps of each vector by its title: a client, `sends` or `gets`, and the bytes."""
    vectors = {}
    with open(path) as file:
        lines = file.read().splitlines()
    for line in lines:
        step = re.match(r"([A-Z]\d*)(::|:|<|\|) ?(.*)", line)
        if line.startswith("== "):
            steps = vectors[line[3:]] = []
        elif step:
            client, mark, text = step.groups()
            if mark == "|":
                # The line continues the body of the previous reply. `*` represents optional lines, which are not sent.
                steps[-1][2] += b"" if text == "*" else example(unescape(text)) + b"\n"
            else:
                end = b"" if mark == "::" else b"\r\n"
                steps.append([client, "gets" if mark == "<" else "sends", example(unescape(text)) + end])
    for steps in vectors.values():
        for step in steps:
            line, _, body = step[2].partition(b"\r\n")
            step[2] = line.replace(b"<len>", b"%d" % len(body)) + b"\r\n" + body if step[1] == "gets" else step[2]
    return vectors


def play(steps, listener):
    """Plays the steps. Returns the first difference, or None if the client sent the bytes of the vector."""
    clients = {}
    try:
        for client, what, wanted in steps:
            if client not in clients:
                clients[client] = listener.accept()[0]
            if what == "gets":
                clients[client].sendall(wanted)
                continue
            got = receive(clients[client], wanted)
            if got != wanted:
                return f"{client} should send {wanted!r} but sent {got!r}"
        return None
    finally:
        for connection in clients.values():
            connection.close()


def receive(connection, wanted):
    """Reads `wanted`. Stops at the first difference or at the end of the stream. Returns the bytes read."""
    got = b""
    while len(got) < len(wanted) and wanted.startswith(got):
        piece = connection.recv(len(wanted) - len(got))
        if not piece:
            break
        got += piece
    return got


if __name__ == "__main__":
    vectors = load()
    if len(sys.argv) == 1:
        print("\n".join(vectors))
        sys.exit()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("%s:%d" % listener.getsockname(), flush=True)
        sys.exit(play(vectors[sys.argv[1]], listener))
