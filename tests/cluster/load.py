"""Clients of beanstalk, Gearman and Workq that record all replies during a fault."""

import socket
import struct
import threading
import time
import uuid

# Time in seconds that a client waits for a reply before it tries the next server. Producers wait for a shorter time,
# because the stalls in beanpole-cluster(7) are those of such producers.
PATIENCE, SHORT_PATIENCE = 3, 0.7

# Time to run of Workq jobs in milliseconds. The time is short, because the server detects the death of a Workq worker
# only when this time has passed.
TTR = 2000


class Client:
    """A connection to the first server in the list that replies."""

    def __init__(self, world, door):
        self.world, self.door, self.turn, self.link, self.node = world, door, 0, None, None
        self.patience = PATIENCE

    def connect(self, end):
        while time.time() < end:
            self.node = self.world.nodes[self.turn % len(self.world.nodes)]
            try:
                self.link = socket.create_connection(("127.0.0.1", self.node.doors[self.door].port), timeout=0.5)
                self.link.settimeout(self.patience)
                self.rest = b""
                return
            except OSError:
                self.turn += 1
            time.sleep(0.01)
        raise TimeoutError("no server")

    def drop(self):
        if self.link:
            self.link.close()
        self.link = None
        self.turn += 1
        time.sleep(0.01)

    def more(self):
        data = self.link.recv(65536)
        if not data:
            raise OSError("closed")
        self.rest += data

    def line(self):
        while b"\r\n" not in self.rest:
            self.more()
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line.decode()

    def take(self, size):
        while len(self.rest) < size:
            self.more()
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def body(self, size):
        return self.take(size + 2)[:size]

    def ask(self, text):
        self.link.sendall(text)
        return self.line()

    def packet(self, kind, *arguments):
        data = b"\0".join(arguments)
        self.link.sendall(b"\0REQ" + struct.pack(">II", kind, len(data)) + data)

    def hear(self):
        kind, size = struct.unpack(">4xII", self.take(12))
        return kind, self.take(size).split(b"\0")


class Book:
    """The acknowledged changes, and the problems that clients found."""

    def __init__(self):
        self.lock = threading.Lock()
        # Bodies of jobs in three sets: put acknowledged, deletion acknowledged, and deletion requested.
        self.put, self.deleted, self.unsure = set(), set(), set()
        # Times of acknowledged puts, and times of all replies.
        self.moments, self.answers = [time.time()], []
        self.holders, self.problems, self.refused = {}, [], 0

    def acknowledged(self, body):
        with self.lock:
            self.put.add(body)
            self.moments.append(time.time())
        self.answered()

    def answered(self):
        self.answers.append(time.time())

    def taken(self, body, client):
        """Records that a worker received a job. The job must not have been deleted, and must not be held by another
        worker of the same server."""
        self.answered()
        with self.lock:
            if body in self.deleted:
                self.problems.append(f"{body} was received again after its completion was acknowledged")
            holder = self.holders.get(body)
            self.holders[body] = (client, client.link)
        if holder and holder[0] is not client and holder[0].node is client.node:
            time.sleep(0.5)
            if holder[1] is holder[0].link and self.holders.get(body, (None,))[0] is client:
                self.problems.append(f"{body} is reserved by two workers of {client.node.name}")

    def ends(self, body):
        with self.lock:
            self.unsure.add(body)
            self.holders.pop(body, None)

    def ended(self, body):
        with self.lock:
            self.deleted.add(body)
        self.answered()

    def stall(self):
        """Returns the longest time between two acknowledged puts, in seconds."""
        moments = sorted(self.moments + [time.time()])
        return max(later - earlier for earlier, later in zip(moments, moments[1:]))


class Load:
    """Producers and workers for all protocols."""

    def __init__(self, world):
        self.world, self.stop, self.book = world, False, Book()
        steps = [("beanstalk", self.put, 3), ("beanstalk", self.reserve, 2), ("gearman", self.submit, 1),
                 ("gearman", self.grab, 1), ("workq", self.add, 1), ("workq", self.lease, 1)]
        self.threads = [threading.Thread(target=self.run, args=(door, step, f"{step.__name__}{number}"), daemon=True)
                        for door, step, count in steps for number in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, door, step, name):
        client, number = Client(self.world, door), 0
        client.patience = SHORT_PATIENCE if step in (self.put, self.submit, self.add) else PATIENCE
        while not self.stop and not self.world.is_closed:
            number += 1
            try:
                if not client.link:
                    client.connect(time.time() + 1)
                    if step == self.grab:
                        client.packet(1, b"gearman")
                step(client, f"{name}-{number}".encode())
            except (OSError, TimeoutError, IndexError, struct.error):
                client.drop()
            except Exception as problem:  # A thread that exits silently would test nothing.
                self.book.problems.append(f"{name}: {problem!r}")
                return
            time.sleep(0.004)

    def put(self, client, body):
        reply = client.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))
        if reply.startswith("INSERTED"):
            self.book.acknowledged(body)
        elif reply == "OUT_OF_MEMORY":
            self.book.refused += 1
        else:
            raise ValueError(reply)

    def reserve(self, client, _):
        reply = client.ask(b"reserve-with-timeout 1\r\n").split()
        if reply[0] != "RESERVED":
            return
        body = client.body(int(reply[2]))
        self.book.taken(body, client)
        self.book.ends(body)
        if client.ask(b"delete %s\r\n" % reply[1].encode()) == "DELETED":
            self.book.ended(body)

    def submit(self, client, body):
        # Sends SUBMIT_JOB_BG. The reply is JOB_CREATED.
        client.packet(18, b"gearman", b"", body)
        kind, _ = client.hear()
        if kind == 8:
            self.book.acknowledged(body)
        elif kind == 19:
            self.book.refused += 1
        else:
            raise ValueError(kind)

    def grab(self, client, _):
        # Sends GRAB_JOB. The reply is NO_JOB or JOB_ASSIGN. WORK_COMPLETE has no reply.
        client.packet(9)
        kind, words = client.hear()
        if kind == 11:
            self.book.taken(words[2], client)
            self.book.ends(words[2])
            client.packet(13, words[0], b"done")
        elif kind != 10:
            raise ValueError(kind)

    def add(self, client, body):
        reply = client.ask(b"add %s workq %d 600000 %d\r\n%s\r\n" % (str(uuid.uuid4()).encode(), TTR, len(body), body))
        if reply.startswith("+OK"):
            self.book.acknowledged(body)
        elif "OUT-OF" in reply.upper() or "QUEUE" in reply:
            self.book.refused += 1
        else:
            raise ValueError(reply)

    def lease(self, client, _):
        if client.ask(b"lease workq 1000\r\n") != "+OK 1":
            return
        words = client.line().split()
        body = client.body(int(words[3]))
        self.book.taken(body, client)
        self.book.ends(body)
        if client.ask(b"complete %s 2\r\nok\r\n" % words[0].encode()).startswith("+OK"):
            self.book.ended(body)

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join()
        return self.book


def drain(world):
    """Reserves and deletes all jobs of all tubes, and returns the jobs. If the active server changes, which can happen
    on a busy machine, a job whose deletion was not confirmed may be returned twice."""
    client, found, gone, end = Client(world, "beanstalk"), [], set(), time.time() + 300
    while True:
        try:
            client.connect(time.time() + 20)
            client.ask(b"watch gearman\r\n")
            client.ask(b"watch workq\r\n")
            client.link.settimeout(30)
            while True:
                reply = client.ask(b"reserve-with-timeout %d\r\n" % (TTR // 1000 + 1)).split()
                if reply[0] == "RESERVED":
                    found.append(client.body(int(reply[2])))
                    assert reply[1] not in gone, f"job {reply[1]} was deleted but exists again"
                    if client.ask(b"delete %s\r\n" % reply[1].encode()) == "DELETED":
                        gone.add(reply[1])
                elif reply[0] != "DEADLINE_SOON":
                    return found
        except OSError:
            client.drop()
            assert time.time() < end, "the queue cannot be drained"
