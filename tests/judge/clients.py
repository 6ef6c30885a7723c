"""Connections that record the data that they send and receive, and a loop that runs all clients.

A client is a generator: it yields a command and then receives the reply, or yields a number of seconds to sleep. Owns
sockets and times. Must not check replies."""

import heapq
import selectors
import socket
import ssl
import time

from history import Mark, Op
from server import Gone

# Replies that have a body.
WITH_BODY = ("RESERVED", "FOUND", "OK")


class Connection:
    def __init__(self, world, name):
        self.world, self.name, self.buffer, self.op, self.client = world, name, b"", None, None
        try:
            self.socket = socket.create_connection(("127.0.0.1", world.server.port), timeout=10)
        except OSError as error:
            raise Gone(world.server.state() or f"no connection: {error}") from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if world.tls:
            self.socket = world.tls.wrap_socket(self.socket)
        world.selector.register(self.socket, selectors.EVENT_READ, self)

    def send(self, line, body=None):
        self.op = Op(self.name, time.monotonic(), line, body, quiet=self.world.quiet())
        self.world.history.append(self.op)
        data = line.encode() + b"\r\n" + (body + b"\r\n" if body is not None else b"")
        try:
            self.socket.sendall(data)
        except OSError:
            self.world.drop(self)

    def read(self):
        try:
            data = self.socket.recv(1 << 20)
            while self.world.tls and self.socket.pending():
                data += self.socket.recv(1 << 20)
        except OSError:
            data = b""
        now = time.monotonic()
        if not data:
            self.world.drop(self)
            return
        self.buffer += data
        end = self.buffer.find(b"\r\n")
        if end < 0 or not self.op:
            return
        line = self.buffer[:end].decode()
        rest = end + 2
        if line.split(" ")[0] in WITH_BODY:
            size = int(line.split(" ")[-1])
            if len(self.buffer) < rest + size + 2:
                return
            self.op.data = self.buffer[rest:rest + size]
            rest += size + 2
        self.buffer = self.buffer[rest:]
        op, self.op = self.op, None
        op.done, op.reply = now, line
        self.world.step(self, op)


class World:
    """All clients of one server, and the history of their commands and replies."""

    def __init__(self, server, tls=False):
        self.tls = None
        if tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        self.server, self.history, self.selector = server, [], selectors.DefaultSelector()
        self.connections, self.alarms, self.count = {}, [], 0

    def quiet(self):
        return not any(connection.op for connection in self.connections.values())

    def add(self, kind, client):
        """Opens a connection for a client. `kind` is the prefix of its name. `client` returns the generator."""
        self.count += 1
        name = f"{kind}{self.count}"
        connection = Connection(self, name)
        self.connections[name] = connection
        connection.client = client(name)
        self.step(connection, None)
        return name

    def step(self, connection, reply):
        """Passes a reply to the client, and executes the request that the client yields."""
        try:
            want = connection.client.send(reply)
        except StopIteration:
            self.drop(connection)
            return
        if isinstance(want, (int, float)):
            self.count += 1
            heapq.heappush(self.alarms, (time.monotonic() + want, self.count, connection))
        elif isinstance(want, bytes):
            # Sends half of a put and disconnects. The server may count the command.
            line, _, body = want.partition(b"\r\n")
            self.history.append(Op(connection.name, time.monotonic(), line.decode(), body))
            try:
                connection.socket.sendall(want)
            except OSError:
                pass
            self.drop(connection)
        else:
            connection.send(*want)

    def drop(self, connection):
        if self.connections.pop(connection.name, None):
            self.history.append(Mark("close", time.monotonic(), connection.name))
            self.selector.unregister(connection.socket)
            connection.socket.close()

    def run(self, seconds, until=None):
        """Runs the clients for a number of seconds or until a condition holds."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end and not (until and until()):
            while self.alarms and self.alarms[0][0] <= now:
                connection = heapq.heappop(self.alarms)[2]
                if connection.name in self.connections:
                    self.step(connection, None)
            wait = min(end, self.alarms[0][0] if self.alarms else end) - time.monotonic()
            for key, _ in self.selector.select(max(0, min(wait, 0.2))):
                if key.data.name in self.connections:
                    key.data.read()

    def down(self, how, random):
        mark = Mark("down", time.monotonic(), how=how)
        self.history.append(mark)
        mark.how = self.server.end(how, random)
        for connection in list(self.connections.values()):
            self.drop(connection)

    def up(self):
        """Starts the server. Waits for its first reply, because a server can listen before it has read its files."""
        self.server.start()
        replies = []

        def ask(_):
            replies.append((yield "list-tube-used", None))
        name = self.add("starts", ask)
        self.run(60, lambda: replies or name not in self.connections)
        if not replies:
            raise Gone(self.server.state() or "no reply within 60 s after the start")
        self.history.append(Mark("up", time.monotonic()))
