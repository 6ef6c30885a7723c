"""The faults, with one function for each numbered fault. Each function applies its fault to a cluster under load and
checks the effects that are specific to this fault."""

import os
import shutil
import signal
import socket
import time

import machines
import outages
from load import Client, churn, end_of

# Durations of some faults in seconds, for long runs and for normal runs.
LONG = {"stopped": 30, "no quorum": 60}
SHORT = {"stopped": 8, "no quorum": 10}


def row_1(world, book, lengths):
    """SIGKILL the active server"""
    node = world.active()
    node.kill()
    time.sleep(4)
    node.start()


def row_2(world, book, lengths):
    """SIGKILL the active server and etcd's leader"""
    node, leader = world.active(), world.leader()
    world.kill_etcd(leader)
    node.kill()
    time.sleep(6)
    world.start_etcd(leader)
    node.start()


def row_3(world, book, lengths):
    """SIGKILL etcd's leader"""
    leader = world.leader()
    world.kill_etcd(leader)
    time.sleep(5)
    world.start_etcd(leader)


def row_4(world, book, lengths):
    """SIGSTOP the active server for 5 s: it must not reply afterwards"""
    machines.suspend(world, book)


def row_5(world, book, lengths):
    """SIGSTOP etcd's leader"""
    leader = world.servers[world.leader()]
    leader.send_signal(signal.SIGSTOP)
    time.sleep(lengths["stopped"])
    leader.send_signal(signal.SIGCONT)


def cut_off(world, node, ways):
    """Cuts the networks `ways` for 10 s. The server must stop serving before the other server becomes active."""
    other = next(one for one in world.nodes if one is not node)
    link = socket.create_connection(("127.0.0.1", node.port), timeout=15)
    begin = time.time()
    for way in ways:
        way.cut = True
    assert end_of(link, 15) == b""
    closed, opened = time.time(), None
    assert not other.serves(), "two servers are active at the same time"
    while opened is None and time.time() < begin + 30:
        opened = time.time() if other.serves() else None
        time.sleep(0.005)
    assert opened is not None, "no other server became active"
    assert not node.serves(), "two servers are active at the same time"
    time.sleep(max(0, begin + 10 - time.time()))
    for way in ways:
        way.cut = False
    return f"inactive after {closed - begin:.2f} s, the other server active after {opened - begin:.2f} s"


def row_6(world, book, lengths):
    """disconnect the active server's machine for 10 s"""
    node = world.active()
    return cut_off(world, node, [*node.ways, *node.doors.values()])


def row_7(world, book, lengths):
    """disconnect the active server from etcd, but not from its clients, for 10 s"""
    node = world.active()
    return cut_off(world, node, node.ways)


def row_8(world, book, lengths):
    """disconnect a standby from etcd for 10 s"""
    other = world.standby()
    for way in other.ways:
        way.cut = True
    time.sleep(10)
    for way in other.ways:
        way.cut = False
    time.sleep(3)
    assert world.active() is not other, "the disconnected standby took over"
    lines = [line.split("\t") for line in world.cluster("status").splitlines()[1:]]
    entries = {line[0]: int(line[2]) for line in lines}
    behind = max(entries.values()) - entries[other.name]
    # The standby reports its position every 2 s.
    assert behind < 1000, f"the copy is {behind} entries behind"
    return f"{behind} entries behind"


def row_9(world, book, lengths):
    """etcd's responses to the active server held for 5 s; 30 % of packets lost for 15 s; 200 ms of delay for 10 s"""
    first, node = world.epoch(), world.active()
    for way in node.ways:
        way.mute = True
    time.sleep(5)
    for way in node.ways:
        way.mute = False
    time.sleep(4)
    second, ways = world.epoch(), [way for one in world.nodes for way in one.ways]
    for way in ways:
        way.loss = 0.3
    time.sleep(15)
    for way in ways:
        way.loss, way.delay = 0, 0.2
    time.sleep(10)
    for way in ways:
        way.delay = 0
    third = world.epoch()
    assert second - first <= 1 and third - second <= 1, f"epochs {first}, {second}, {third}"
    return f"{second - first} switches, then {third - second}"


def row_10(world, book, lengths):
    """no quorum"""
    stopped = world.servers[:2]
    for server in stopped:
        server.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    time.sleep(lengths["no quorum"])
    late = [asked - begin for asked in list(book.answers) if asked > begin + 1.2]
    assert not late, f"replies to requests {late} s after the quorum was lost"
    end = time.time()
    for server in stopped:
        server.send_signal(signal.SIGCONT)
    while not any(moment > end for moment in book.moments[-20:]) and time.time() < end + 30:
        time.sleep(0.02)
    assert book.moments[-1] > end, "puts fail although the quorum is back"
    return f"serves {book.moments[-1] - end:.1f} s after the quorum is back"


def row_12(world, book, lengths):
    """all machines lose power at the same time"""
    for node in world.nodes:
        node.kill()
    for number in range(3):
        world.kill_etcd(number)
    for number in range(3):
        world.start_etcd(number)
    world.wait_for_etcd()
    for node in world.nodes:
        node.start()
    world.active()
    time.sleep(3)


def row_13(world, book, lengths):
    """a server whose clock is an hour ahead takes over, and then one whose clock is an hour behind"""
    if not world.nodes[1].numbers[0]:
        world.nodes[1].shift_clock(3600)
        # The warning about a clock requires ten lease renewals.
        time.sleep(3)
    for _ in range(2):
        node = world.active()
        node.kill()
        client = Client(world, "beanstalk")
        end = time.time() + 20
        while True:
            try:
                client.connect(end)
                client.ask(b"use ttr\r\n")
                client.ask(b"watch ttr\r\n")
                client.ask(b"ignore default\r\n")
                assert client.ask(b"put 0 0 5 1\r\nx\r\n").startswith("INSERTED")
                job = client.ask(b"reserve\r\n").split()[1].encode()
                break
            except OSError:
                client.drop()
                assert time.time() < end, "no server is active"
        client.body(1)
        node.start()
        time.sleep(3.9)
        assert client.ask(b"touch %s\r\n" % job) == "TOUCHED", "the time to run expired early"
        assert client.ask(b"delete %s\r\n" % job) == "DELETED"
    warned = [node.name for node in world.nodes if "of this server's clock" in node.log()]
    assert warned, "no server reports the wrong clock"
    return f"warned by {' and '.join(warned)}"


def row_14(world, book, lengths):
    """servers upgraded one after the other, an etcd machine replaced, and a server replaced"""
    standby, active = world.standby(), world.active()
    standby.signal(signal.SIGTERM)
    standby.process.wait(timeout=20)
    standby.start()
    time.sleep(3)
    begin = time.time()
    active.signal(signal.SIGTERM)
    active.process.wait(timeout=20)
    assert not active.serves()
    world.wait(standby.serves, "the standby does not take over")
    switch = time.time() - begin
    world.replace_etcd(0)
    time.sleep(3)
    # Replaces the formerly active server with a new one that has an empty directory.
    world.cluster("retire", active.name)
    shutil.rmtree(active.folder)
    active.start()
    time.sleep(3)
    world.promote(active)
    begin = time.time()
    while not active.serves() and time.time() < begin + 20:
        time.sleep(0.005)
    assert world.active() is active
    return f"switches in {switch:.2f} s and {time.time() - begin:.2f} s"


def row_15(world, book, lengths):
    """purge while a standby is stopped"""
    standby, client = world.standby(), Client(world, "beanstalk")
    standby.signal(signal.SIGSTOP)
    client.connect(time.time() + 5)
    while client.node is standby:
        client.drop()
        client.connect(time.time() + 5)
    churn(client, lambda: False, 100)
    time.sleep(3)
    standby.signal(signal.SIGCONT)
    time.sleep(4)
    assert "made again from entry" in standby.log(), "the purge removed no entry that the standby needed"
    # Starts the killed server again, to check that it can read the files that `purge` has written.
    active = world.active()
    active.kill()
    time.sleep(4)
    active.start()


def row_17(world, book, lengths):
    """the directory of the active server is lost"""
    node, other = world.active(), world.standby()
    os.rename(node.folder, f"{node.folder}.away{world.round}")
    begin = time.time()
    while not (other.serves() or "stops being active" in node.log()):
        assert time.time() < begin + 20, "the server stays active without its directory"
        time.sleep(0.005)
    world.active()
    time.sleep(3)


def row_18(world, book, lengths):
    """a bit of a standby's copy is flipped on its disk, and then the active server is killed"""
    node, other = world.active(), world.standby()
    time.sleep(2)
    name = sorted(name for name in os.listdir(other.folder) if name.startswith("segment."))[0]
    with open(os.path.join(other.folder, name), "r+b") as file:
        file.seek(300)
        byte = file.read(1)[0]
        file.seek(300)
        file.write(bytes([byte ^ 1]))
    node.kill()
    time.sleep(6)
    assert "is damaged; copying the journal again" in other.log(), "the damage was not detected"
    node.start()


def row_19(world, book, lengths):
    """SIGTERM while etcd is unreachable: the server stops, and stays stopped"""
    node = world.active()
    for way in node.ways:
        way.cut = True
    node.signal(signal.SIGTERM)
    assert node.process.wait(timeout=20) == 0
    for way in node.ways:
        way.cut = False


def row_20(world, book, lengths):
    """SIGKILL the active server, and its successor as soon as it has claimed the journal"""
    node, other = world.active(), world.standby()
    seen = len(other.log())
    node.kill()
    end = time.time() + 20
    while "active as" not in other.log()[seen:]:
        assert time.time() < end, "the standby does not take over"
        time.sleep(0.002)
    other.kill()
    node.start()
    time.sleep(4)
    other.start()


# For each fault: the function, and the longest expected time without an acknowledged put, in seconds.
ROWS = {1: (row_1, 2.5), 2: (row_2, 8), 3: (row_3, 5), 4: (row_4, 5), 5: (row_5, 6), 6: (row_6, 6), 7: (row_7, 6),
        8: (row_8, 1), 9: (row_9, 6), 10: (row_10, 65), 12: (row_12, 25), 13: (row_13, 6), 14: (row_14, 4),
        15: (row_15, 4), 17: (row_17, 5), 18: (row_18, 4), 19: (row_19, 4), 20: (row_20, 6), **outages.ROWS, **machines.ROWS}

# The longest median over all rounds, in seconds.
MEDIANS = {1: 1.5}

# Arguments of the cluster. Without arguments, the cluster consists of two servers.
WORLDS = {13: {"has_shim": True}, **outages.WORLDS, **machines.WORLDS}

# Rows in which requests can be refused, because a disk fails.
MAY_REFUSE = {17, *machines.MAY_REFUSE}
