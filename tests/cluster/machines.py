"""Faults of a server's machine, in the same form as those in rows.py: its disk fails or is full, its copy is damaged, it
is suspended, or its clock changes."""

import errno
import os
import random
import signal
import socket
import time

from load import Client, churn, end_of
from world import CREATE, REMOVE, WRITE

# Consecutive rounds use different operations and different kinds of damage.
OPERATIONS = {"created": CREATE, "written": WRITE, "removed": REMOVE}
DAMAGES = ("overwritten with zeros", "cut", "removed")


def suspend(world, book, hides_time=False):
    """Suspends the active server, and returns it. With `hides_time`, CLOCK_MONOTONIC does not include this time."""
    node = world.active()
    links = [socket.create_connection(("127.0.0.1", node.port), timeout=3) for _ in range(3)]
    node.signal(signal.SIGSTOP)
    for number, link in enumerate(links):
        # The signal may arrive after the server has executed a put. The bodies differ, like all bodies of the load.
        book.sent.add(b"late%d" % number)
        link.sendall(b"put 0 0 60 5\r\nlate%d\r\nlist-tubes\r\n" % number)
    time.sleep(5)
    if hides_time:
        node.numbers[1] += 5
        node.apply()
    node.signal(signal.SIGCONT)
    for link in links:
        assert end_of(link, 5) == b"", "the server replies after it was suspended"
    return node


def row_32(world, book, lengths):
    """the active server's disk fails, but is not full: another server must take over"""
    node, other, seen = world.active(), world.standby(), len(world.active().log())
    name = list(OPERATIONS)[world.round % len(OPERATIONS)]
    client = Client(world, "beanstalk", node)
    client.connect(time.time() + 5)
    node.fail_disk(errno.EIO, OPERATIONS[name])
    try:
        churn(client, lambda: False)
        raise AssertionError(f"the server stays active, although files cannot be {name}")
    except OSError:
        pass
    world.wait(other.serves, "no other server takes over")
    assert "stops being active" in node.log()[seen:]
    time.sleep(3)
    node.repair_disk()
    return f"files could not be {name}"


def row_33(world, book, lengths):
    """the active server's disk is full: the server must stay active and delete jobs"""
    node, epoch = world.active(), world.epoch()
    client = Client(world, "beanstalk", node)
    client.patience = 10
    client.connect(time.time() + 5)
    client.ask(b"use full\r\n")
    put = b"put 0 0 60 60000\r\n%s\r\n" % (b"x" * 60000)
    node.fail_disk(errno.ENOSPC, WRITE)
    replies = []
    while len(replies) < 2000 and replies[-1:] != ["OUT_OF_MEMORY"]:
        replies.append(client.ask(put))
    assert replies.pop() == "OUT_OF_MEMORY", "puts are not refused"
    for reply in replies:
        assert client.ask(b"delete %s\r\n" % reply.split()[1].encode()) == "DELETED"
    assert world.epoch() == epoch and world.active() is node, "another server became active"
    node.repair_disk()
    begin, reply = time.time(), ""
    while not reply.startswith("INSERTED"):
        assert time.time() < begin + 30, f"puts are still refused: {reply}"
        time.sleep(0.05)
        reply = client.ask(put)
    assert client.ask(b"delete %s\r\n" % reply.split()[1].encode()) == "DELETED"
    return f"accepts jobs {time.time() - begin:.1f} s after the disk has space"


def newest_segment(folder):
    """Returns the path of the newest file with data. It still exists when the standby takes over."""
    for name in sorted(os.listdir(folder), reverse=True):
        path = os.path.join(folder, name)
        if name.startswith("segment."):
            with open(path, "rb") as file:
                # A new file consists of zeros.
                if len(file.read().rstrip(b"\0")) > 9000:
                    return path
    raise AssertionError("no file contains data")


def row_34(world, book, lengths):
    """a stopped standby's copy is damaged, the standby is started, and then the active server is killed"""
    node, other = world.active(), world.standby()
    time.sleep(2)
    other.signal(signal.SIGTERM)
    assert other.process.wait(timeout=20) == 0
    damage, seen = DAMAGES[world.round % len(DAMAGES)], len(other.log())
    path = newest_segment(other.folder)
    if damage == "removed":
        os.remove(path)
    elif damage == "cut":
        os.truncate(path, 4000)
    else:
        with open(path, "r+b") as file:
            file.seek(300)
            file.write(bytes(8192))
    other.start()
    time.sleep(3)
    node.kill()
    # The active server may have removed the segment from the journal.
    is_needed = os.path.exists(os.path.join(node.folder, os.path.basename(path)))
    time.sleep(6)
    is_detected = "is damaged; copying the journal again" in other.log()[seen:]
    assert is_detected or not is_needed, f"a file was {damage}, which was not detected"
    node.start()
    return f"a file was {damage}"


def row_35(world, book, lengths):
    """the machine of the active server is suspended for 5 s, which CLOCK_MONOTONIC does not include"""
    node = suspend(world, book, hides_time=True)
    # A new process has no deadlines of the previous clock.
    node.kill()
    node.numbers[1] = 0
    node.start()


def row_36(world, book, lengths):
    """the standby's clock changes by an hour up to 2 s before the standby takes over: no delay or pause ends early"""
    node, standby = world.active(), world.standby()
    client = Client(world, "beanstalk", node)
    client.connect(time.time() + 5)
    begin = time.time()
    for tube, delay in ((b"later", 8), (b"paused", 0)):
        client.ask(b"use %s\r\n" % tube)
        assert client.ask(b"put 0 %d 60 1\r\nx\r\n" % delay).startswith("INSERTED")
    assert client.ask(b"pause-tube paused 8\r\n") == "PAUSED"
    standby.shift_clock(0 if standby.numbers[0] else 3600)
    time.sleep(random.uniform(0, 2))
    node.kill()
    world.wait(standby.serves, "the standby does not take over")
    client = Client(world, "beanstalk", standby)
    client.patience = 30
    client.connect(time.time() + 5)
    client.ask(b"watch later\r\n")
    client.ask(b"watch paused\r\n")
    client.ask(b"ignore default\r\n")
    for _ in range(2):
        reply = client.ask(b"reserve-with-timeout 25\r\n").split()
        passed = time.time() - begin
        assert reply[0] == "RESERVED" and client.body(1) == b"x", reply
        assert passed > 7.9, f"a delay or a pause of 8 s ended after {passed:.1f} s"
        assert client.ask(b"delete %s\r\n" % reply[1].encode()) == "DELETED"
    node.start()
    return f"the last delay ended after {passed:.1f} s"


def row_37(world, book, lengths):
    """SIGTERM while the lease ends, because etcd is unreachable: the server stops, and stays stopped"""
    node = world.active()
    for way in node.ways:
        way.cut = True
    time.sleep(random.uniform(0.5, 1.5))
    node.signal(signal.SIGTERM)
    # A process that is being replaced does not catch the signal yet.
    assert node.process.wait(timeout=20) in (0, -signal.SIGTERM)
    for way in node.ways:
        way.cut = False


ROWS = {32: (row_32, 5), 33: (row_33, 20), 34: (row_34, 4), 35: (row_35, 5), 36: (row_36, 4), 37: (row_37, 4)}

WORLDS = {row: {"has_shim": True} for row in (32, 33, 35, 36)}

MAY_REFUSE = {32, 33}
