"""More faults of servers and networks, in the same form as those in rows.py: repeated and combined faults, faults of
clients' networks, and maintenance."""

import random
import signal
import time

# Lengths of repeated faults in seconds, some shorter and some longer than the lease and the time until a takeover.
AROUND_THE_LEASE = (0.85, 1.1, 1.4, 1.7, 2.1, 2.4)


def follower(world):
    return (world.leader() + 1) % len(world.servers)


def row_21(world, book, lengths):
    """SIGKILL a standby, and then an etcd follower"""
    standby, number, epoch = world.standby(), follower(world), world.epoch()
    standby.kill()
    time.sleep(4)
    standby.start()
    world.kill_etcd(number)
    time.sleep(4)
    world.start_etcd(number)
    assert world.epoch() == epoch, "another server became active"


def row_22(world, book, lengths):
    """shut down the active server, and then promote the other one three times"""
    node, other = world.active(), world.standby()
    node.signal(signal.SIGTERM)
    assert node.process.wait(timeout=20) == 0
    world.wait(other.serves, "the standby does not take over")
    node.start()
    for _ in range(3):
        time.sleep(3)
        other = world.standby()
        world.promote(other)
        world.wait(other.serves, "the promoted server is not active")


def row_23(world, book, lengths):
    """SIGKILL the active server and an etcd follower"""
    node, number = world.active(), follower(world)
    world.kill_etcd(number)
    node.kill()
    time.sleep(5)
    world.start_etcd(number)
    node.start()


def row_24(world, book, lengths):
    """SIGSTOP the active server six times, for 0.85 s to 2.4 s"""
    first = world.epoch()
    for length in random.sample(AROUND_THE_LEASE, 6):
        node = world.active()
        node.signal(signal.SIGSTOP)
        time.sleep(length)
        node.signal(signal.SIGCONT)
        time.sleep(1)
    return f"{world.epoch() - first} switches"


def row_25(world, book, lengths):
    """disconnect the active server from etcd six times, for 0.85 s to 2.4 s"""
    first = world.epoch()
    for length in random.sample(AROUND_THE_LEASE, 6):
        ways = world.active().ways
        for way in ways:
            way.cut = True
        time.sleep(length)
        for way in ways:
            way.cut = False
        time.sleep(1)
    return f"{world.epoch() - first} switches"


def row_26(world, book, lengths):
    """the active server's requests to etcd held for 5 s"""
    node = world.active()
    for way in node.ways:
        way.deaf = True
    time.sleep(5)
    for way in node.ways:
        way.deaf = False


def row_27(world, book, lengths):
    """replies to clients held for 5 s; then the active server disconnected from clients, but not from etcd, for 6 s"""
    node, epoch = world.active(), world.epoch()
    for fault, length in (("mute", 5), ("cut", 6)):
        for door in node.doors.values():
            setattr(door, fault, True)
        time.sleep(length)
        for door in node.doors.values():
            setattr(door, fault, False)
        time.sleep(2)
    assert world.epoch() == epoch, "another server became active"


def row_28(world, book, lengths):
    """restart three servers and three etcd servers one after the other, and move etcd's leader"""
    for node in world.nodes:
        node.signal(signal.SIGTERM)
        assert node.process.wait(timeout=20) == 0, node.name
        world.active()
        node.start()
        time.sleep(3)
    for number in range(3):
        world.servers[number].terminate()
        world.servers[number].wait()
        time.sleep(1)
        world.start_etcd(number)
        world.wait_for_etcd()
    leader, target = world.leader(), follower(world)
    identifier = world.ask_etcd(target, "/v3/maintenance/status")["header"]["member_id"]
    world.ask_etcd(leader, "/v3/maintenance/transfer-leadership", {"targetID": identifier})
    world.wait(lambda: world.leader() == target, "etcd's leader does not change")


def row_29(world, book, lengths):
    """compact and defragment etcd while a standby is stopped, and then SIGKILL the active server"""
    node, standby = world.active(), world.standby()
    standby.signal(signal.SIGSTOP)
    time.sleep(3)
    revision = world.ask_etcd(0, "/v3/maintenance/status")["header"]["revision"]
    world.ask_etcd(0, "/v3/kv/compaction", {"revision": revision, "physical": True})
    for number in range(3):
        world.ask_etcd(number, "/v3/maintenance/defragment")
    standby.signal(signal.SIGCONT)
    time.sleep(2)
    node.kill()
    time.sleep(4)
    node.start()


def row_30(world, book, lengths):
    """SIGKILL the active one of three servers, and one second after the takeover its successor"""
    killed = []
    for _ in range(2):
        node = world.active()
        node.kill()
        killed.append(node)
        world.active()
        time.sleep(1)
    time.sleep(2)
    for node in killed:
        node.start()


def row_31(world, book, lengths):
    """no connections to etcd's leader from the other etcd servers for 8 s"""
    way = world.peer_ways[world.leader()]
    way.cut = True
    time.sleep(8)
    way.cut = False


ROWS = {21: (row_21, 1), 22: (row_22, 1), 23: (row_23, 3), 24: (row_24, 4), 25: (row_25, 5), 26: (row_26, 4),
        27: (row_27, 7), 28: (row_28, 4), 29: (row_29, 3), 30: (row_30, 3), 31: (row_31, 6)}

WORLDS = {28: {"names": "abc"}, 30: {"names": "abc"}, 31: {"has_peer_ways": True}}
