"""Clients of beanstalk, Gearman and Workq that record all replies during a fault."""

import socket
import struct
import threading
import time
import uuid
from collections import Counter

# Time in seconds that a client waits for a reply before it tries the next server. Producers wait for a shorter time,
# because the stalls in beanpole-cluster(7) are those of such producers.
PATIENCE, SHORT_PATIENCE = 3, 0.7

# Time to run of Workq jobs in milliseconds. The time is short, because the server detects the death of a Workq worker
# only when this time has passed.
TTR = 2000

# Time in seconds after a failure within which each protocol must work again.
RECOVERY = 30


class Client:
    """A connection to the first server in the list that replies or, if `only` is given, to this server. The connection
    to the server `only` does not use the simulated networks."""

    def __init__(self, world, door, only=None):
        self.world, self.door, self.only, self.turn, self.link, self.node = world, door, only, 0, None, None
        self.patience = PATIENCE
        # The epoch of the server, if it is known, and the time before the last request was sent.
        self.epoch, self.asked = None, 0.0

    def connect(self, end):
        while time.time() < end:
            self.node = self.only or self.world.nodes[self.turn % len(self.world.nodes)]
            port = self.only.ports[self.door] if self.only else self.node.doors[self.door].port
            try:
                self.link = socket.create_connection(("127.0.0.1", port), timeout=0.5)
                self.link.settimeout(self.patience)
                self.rest, self.epoch = b"", None
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
        self.asked = time.monotonic()
        self.link.sendall(text)
        return self.line()

    def learn_epoch(self):
        """Asks for the server's epoch. A failover closes all connections, so the epoch of a connection is constant. While
        a server is a standby, a server of another test may listen on its port."""
        reply = self.ask(b"stats\r\n").split()
        stats = dict(line.split(": ", 1) for line in self.body(int(reply[1])).decode().splitlines() if ": " in line)
        if int(stats["pid"]) != self.node.process.pid:
            raise OSError("another server")
        self.epoch = int(stats["epoch"]) if "epoch" in stats else None

    def packet(self, kind, *arguments):
        data = b"\0".join(arguments)
        self.asked = time.monotonic()
        self.link.sendall(b"\0REQ" + struct.pack(">II", kind, len(data)) + data)

    def hear(self):
        kind, size = struct.unpack(">4xII", self.take(12))
        return kind, self.take(size).split(b"\0")


class Book:
    """The acknowledged changes, and the problems that clients found."""

    def __init__(self):
        self.lock = threading.Lock()
        # Bodies of jobs: put requested, put acknowledged, deletion acknowledged, and deletion requested.
        self.sent, self.put, self.deleted, self.unsure = set(), set(), set(), set()
        # The body of each acknowledged beanstalk job, by its number.
        self.ids = {}
        # Times of acknowledged puts. On the monotonic clock: the times of all requests that were answered, and the time of
        # the first reply of each epoch.
        self.moments, self.answers, self.begun = [time.time()], [], {}
        # `refused` is the number of requests that were refused because the disk or etcd is full.
        self.holders, self.problems, self.refused = {}, [], 0
        # The number of acknowledged puts and of received jobs for each protocol.
        self.steps = Counter()

    def acknowledged(self, body, client, job=None):
        with self.lock:
            self.put.add(body)
            self.moments.append(time.time())
            self.steps["put", client.door] += 1
            if job and self.ids.setdefault(job, body) != body:
                self.problems.append(f"job {job} is both {self.ids[job]} and {body}")
        self.answered(client)

    def answered(self, client):
        """Records a reply. A server must not answer a request that was sent after the first reply of a later epoch."""
        now = time.monotonic()
        with self.lock:
            self.answers.append(client.asked)
            if client.epoch is None:
                return
            self.begun.setdefault(client.epoch, now)
            later = [epoch for epoch, begun in self.begun.items() if epoch > client.epoch and begun < client.asked]
            if later:
                self.problems.append(f"{client.node.name} answers in epoch {client.epoch}, but epoch {max(later)} has begun")

    def taken(self, body, client, job=None):
        """Records that a worker received a job. The job must have been put and not deleted, and must not be held by
        another worker of the same server."""
        self.answered(client)
        with self.lock:
            self.steps["take", client.door] += 1
            if body not in self.sent:
                self.problems.append(f"{body} was received but not put")
            if body in self.deleted:
                self.problems.append(f"{body} was received again after its completion was acknowledged")
            if self.ids.get(job, body) != body:
                self.problems.append(f"job {job} is both {self.ids[job]} and {body}")
            holder = self.holders.get(body)
            self.holders[body] = (client, client.link)
        if holder and holder[0] is not client and holder[0].node is client.node:
            time.sleep(0.5)
            if holder[1] is holder[0].link and self.holders.get(body, (None,))[0] is client:
                self.problems.append(f"{body} is reserved by two workers of {client.node.name}")

    def releases(self, body):
        with self.lock:
            self.holders.pop(body, None)

    def ends(self, body):
        with self.lock:
            self.unsure.add(body)
            self.holders.pop(body, None)

    def ended(self, body, client):
        with self.lock:
            self.deleted.add(body)
        self.answered(client)

    def compare(self, left):
        """Compares the book with the bodies of all jobs that are left. Returns the numbers of lost and of reappeared
        jobs, and all problems."""
        present = set(left)
        lost, back = self.put - self.deleted - self.unsure - present, self.deleted & present
        twice = [body for body, count in Counter(left).items() if count > 1]
        problems = list(self.problems)
        for what, bodies in (("lost", lost), ("reappeared", back), ("exist twice", twice),
                             ("were not put", present - self.sent)):
            problems += [f"{len(bodies)} jobs {what}: {sorted(bodies)[:5]}"] * bool(bodies)
        return len(lost), len(back), problems

    def stall(self):
        """Returns the longest time between two acknowledged puts, in seconds."""
        moments = sorted(self.moments + [time.time()])
        return max(later - earlier for earlier, later in zip(moments, moments[1:]))


class Load:
    """Producers and workers for all protocols, and for each server a client that checks the server's epoch."""

    def __init__(self, world):
        self.world, self.stop, self.book = world, False, Book()
        # A job of an earlier load must not be mistaken for one of this load.
        self.prefix = uuid.uuid4().hex[:6]
        steps = [("beanstalk", self.put, 3), ("beanstalk", self.reserve, 2), ("gearman", self.submit, 1),
                 ("gearman", self.grab, 1), ("workq", self.add, 1), ("workq", self.lease, 1)]
        self.threads = [threading.Thread(target=self.run, args=(door, step, f"{step.__name__}{number}"), daemon=True)
                        for door, step, count in steps for number in range(count)]
        self.threads += [threading.Thread(target=self.probe, args=(node,), daemon=True) for node in world.nodes]
        for thread in self.threads:
            thread.start()

    def is_over(self):
        return self.stop or self.world.is_closed

    def run(self, door, step, name):
        client, number = Client(self.world, door), 0
        client.patience = SHORT_PATIENCE if step in (self.put, self.submit, self.add) else PATIENCE
        while not self.is_over():
            number += 1
            try:
                if not client.link:
                    client.connect(time.time() + 1)
                    if door == "beanstalk":
                        client.learn_epoch()
                    if step == self.grab:
                        client.packet(1, b"gearman")
                step(client, f"{self.prefix}-{name}-{number}".encode())
            except OSError:  # Includes TimeoutError.
                client.drop()
            except Exception as problem:  # A thread that exits silently would test nothing.
                self.book.problems.append(f"{name}: {problem!r}")
                return
            time.sleep(0.004)

    def probe(self, node):
        """Asks a server for its epoch many times per second."""
        client = Client(self.world, "beanstalk", node)
        while not self.is_over():
            try:
                if not client.link:
                    client.connect(time.time() + 1)
                client.learn_epoch()
                self.book.answered(client)
                time.sleep(0.03)
            except OSError:
                client.drop()
            except Exception as problem:
                self.book.problems.append(f"the stats of {node.name}: {problem!r}")
                return

    def put(self, client, body):
        self.book.sent.add(body)
        reply = client.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))
        if reply.startswith("INSERTED"):
            self.book.acknowledged(body, client, reply.split()[1])
        elif reply == "OUT_OF_MEMORY":
            self.book.refused += 1
        else:
            raise ValueError(reply)

    def reserve(self, client, name):
        reply = client.ask(b"reserve-with-timeout 1\r\n").split()
        if reply[0] != "RESERVED":
            if reply[0] not in ("TIMED_OUT", "DEADLINE_SOON"):
                raise ValueError(reply)
            return
        body, job = client.body(int(reply[2])), reply[1]
        self.book.taken(body, client, job)
        if name.endswith(b"7"):
            self.book.releases(body)
            reply = client.ask(b"release %s 0 0\r\n" % job.encode())
            if reply == "OUT_OF_MEMORY":
                # A full disk refuses releases too, but not deletes. The job becomes ready when the connection closes.
                self.book.refused += 1
                client.drop()
            elif reply != "RELEASED":
                raise ValueError(f"release: {reply}")
            return
        self.book.ends(body)
        reply = client.ask(b"delete %s\r\n" % job.encode())
        if reply != "DELETED":
            # No other client can delete a reserved job.
            raise ValueError(f"delete: {reply}")
        self.book.ended(body, client)

    def submit(self, client, body):
        # Sends SUBMIT_JOB_BG. The reply is JOB_CREATED.
        self.book.sent.add(body)
        client.packet(18, b"gearman", b"", body)
        kind, _ = client.hear()
        if kind == 8:
            self.book.acknowledged(body, client)
        elif kind == 19:
            self.book.refused += 1
        else:
            raise ValueError(kind)

    def grab(self, client, name):
        # Sends GRAB_JOB. The reply is NO_JOB or JOB_ASSIGN. WORK_COMPLETE has no reply.
        client.packet(9)
        kind, words = client.hear()
        if kind == 11:
            self.book.taken(words[2], client)
            if name.endswith(b"7"):
                # The server must hand out the job again.
                client.drop()
                return
            self.book.ends(words[2])
            client.packet(13, words[0], b"done")
        elif kind != 10:
            raise ValueError(kind)

    def add(self, client, body):
        self.book.sent.add(body)
        reply = client.ask(b"add %s workq %d 600000 %d\r\n%s\r\n" % (str(uuid.uuid4()).encode(), TTR, len(body), body))
        if reply.startswith("+OK"):
            self.book.acknowledged(body, client)
        elif reply == "-SERVER-ERROR Out of memory":
            self.book.refused += 1
        else:
            raise ValueError(reply)

    def lease(self, client, _):
        reply = client.ask(b"lease workq 1000\r\n")
        if reply != "+OK 1":
            if reply != "-TIMEOUT":
                raise ValueError(reply)
            return
        words = client.line().split()
        body = client.body(int(words[3]))
        self.book.taken(body, client)
        self.book.ends(body)
        reply = client.ask(b"complete %s 2\r\nok\r\n" % words[0].encode())
        if reply.startswith("+OK"):
            self.book.ended(body, client)
        elif reply == "-SERVER-ERROR Out of memory":
            self.book.refused += 1
        elif reply != "-NOT-FOUND":
            # The time to run can end during a stall, and then another worker may complete the job.
            raise ValueError(f"complete: {reply}")

    def recover(self):
        """Waits until a job was put and received with each protocol."""
        before, end = Counter(self.book.steps), time.time() + RECOVERY
        missing = [(way, door) for way in ("put", "take") for door in ("beanstalk", "gearman", "workq")]
        while missing and time.time() < end and not self.book.problems:
            time.sleep(0.05)
            missing = [step for step in missing if self.book.steps[step] == before[step]]
        if missing:
            self.book.problems.append(f"clients do not make progress after the failure: {missing}")

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join()
        return self.book


def end_of(link, timeout):
    """Returns the bytes received before the connection closes."""
    link.settimeout(timeout)
    came = b""
    try:
        while data := link.recv(1000):
            came += data
    except ConnectionResetError:
        pass
    link.close()
    return came


def churn(client, done, limit=2000):
    """Puts and deletes large jobs in a separate tube until `done` returns `True`. Meanwhile, the server creates and
    removes files of the binlog."""
    body = b"x" * 60000
    client.ask(b"use churn\r\n")
    for _ in range(limit):
        if done():
            return
        reply = client.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)).split()
        if reply[0] != "OUT_OF_MEMORY":
            assert client.ask(b"delete %s\r\n" % reply[1].encode()) == "DELETED"


def drain(world):
    """Reserves and deletes all jobs of the load's tubes, and returns their bodies. If the active server changes, which
    can happen on a busy machine, a job whose deletion was not confirmed may be reserved twice, but is returned once."""
    client, found, gone, end = Client(world, "beanstalk"), {}, set(), time.time() + 300
    while True:
        try:
            client.connect(time.time() + 20)
            client.ask(b"watch gearman\r\n")
            client.ask(b"watch workq\r\n")
            client.link.settimeout(30)
            while True:
                reply = client.ask(b"reserve-with-timeout %d\r\n" % (TTR // 1000 + 1)).split()
                if reply[0] == "RESERVED":
                    job, body = reply[1], client.body(int(reply[2]))
                    assert found.setdefault(job, body) == body, f"job {job} has two bodies"
                    assert job not in gone, f"job {job} was deleted but exists again"
                    reply = client.ask(b"delete %s\r\n" % job.encode())
                    assert reply == "DELETED", f"job {job}: {reply}"
                    gone.add(job)
                elif reply[0] == "TIMED_OUT":
                    return list(found.values())
                else:
                    assert reply[0] == "DEADLINE_SOON", reply
        except OSError:
            client.drop()
            assert time.time() < end, "the queue cannot be drained"
