"""Disasters that the cluster cannot handle by itself: etcd is lost, reduced to a minority, wiped or restored from a
backup. The copies must preserve the queue, also if all servers are killed at the same time (killed), and if a server
with an empty directory starts a new queue in a wiped etcd (replaced).

Follows the steps of beanpole-cluster(7) with one, two and three servers. Also tests a standby behind a slow network,
which must catch up, and puts of small jobs during the put of a large job, which they must not wait for."""

import os
import shutil
import signal
import threading
import time

from load import Client, Load, drain
from world import Node, World

DISASTERS = ("lost", "minority", "killed", "wiped", "restored", "replaced")


def best_copy(world):
    """Returns the node with the directory to continue with, according to the section "Going back" of the manual."""
    def rank(node):
        place = os.path.join(node.folder, "journal.aside")
        place = place if os.path.exists(place) else node.folder
        with open(os.path.join(place, "journal.position")) as file:
            entry, origin = int(file.readline()), file.readline().split()
        is_complete = entry > 0 and not os.path.exists(os.path.join(place, "journal.incomplete"))
        was_active = os.path.exists(os.path.join(place, "journal.active"))
        return is_complete, int(origin[origin.index("epoch") + 1]), was_active, entry
    return max(world.nodes, key=rank)


def strike(world, kind, backup):
    if kind in ("lost", "minority", "killed"):
        # One of three etcd servers is not a quorum.
        for number in range(len(world.servers) - (kind == "minority")):
            world.kill_etcd(number)
        for node in world.nodes if kind == "killed" else []:
            node.kill()
        return
    world.stop_all_etcds(shutil.rmtree)
    if kind == "restored":
        world.stop_all_etcds(lambda data: (shutil.rmtree(data), shutil.copytree(backup + os.path.basename(data), data)))


def start_anew(world):
    """Starts a server with an empty directory, which must serve a new queue. The other servers must keep refusing."""
    node = Node(world, "new")
    node.start()
    world.wait(node.serves, "a server with an empty directory is not active")
    client = Client(world, "beanstalk", node)
    client.connect(time.time() + 10)
    for _ in range(600):
        assert client.ask(b"put 0 0 60 3\r\nnew\r\n").startswith("INSERTED")
    time.sleep(2)
    assert not any(other.serves() for other in world.nodes), "a server with a copy of the old queue is active"
    return node


def suffer(program, etcd, kind, names):
    """Runs one disaster. Returns `True` if nothing was lost."""
    world = World(program, etcd, names=names)
    try:
        load, backup = Load(world), os.path.join(world.folder, "backup-")
        time.sleep(2)
        if kind == "restored":
            world.stop_all_etcds(lambda data: shutil.copytree(data, backup + os.path.basename(data)))
            world.active()
            load.recover()
            # The standbys need some entries that the backup lacks. The active server's saved position may lack them.
            time.sleep(1)
        strike(world, kind, backup)
        time.sleep(5)
        book = load.end()
        assert not any(node.serves() for node in world.nodes), "a server is still active"
        others = [start_anew(world)] if kind == "replaced" else []
        refused = [node.name for node in world.nodes if "etcd was wiped or restored" in node.log()]
        assert kind in ("lost", "minority", "killed") or len(refused) == len(world.nodes), f"only {refused} report the loss"
        for node in [*others, *world.nodes]:
            if kind != "killed":
                node.signal(signal.SIGTERM)
                assert node.process.wait(timeout=20) == 0, node.name
        node = best_copy(world)
        world.nodes = [node]
        node.run([])
        lost, back, problems = book.compare(drain(world))
        print(f"etcd {kind}, {len(names)} servers: {len(book.put)} acknowledged, {lost} lost, {back} reappeared, "
              f"served from the copy of {node.name}", flush=True)
        print("".join(f"        {problem}\n" for problem in problems), end="", flush=True)
        return len(book.put) > 0 and not problems
    except BaseException:
        world.show_logs()
        raise
    finally:
        world.close()


def slow(program, etcd):
    """A standby behind a network of 100 Mbit/s must catch up with bodies of 1 MiB and take over."""
    world = World(program, etcd, options=("-s", "8M", "-z", "2M"))
    try:
        active, standby = world.active(), world.standby()
        for wire in standby.wires:
            wire.slowness = 8 / 100e6
        client, body, jobs = Client(world, "beanstalk"), b"x" * (1 << 20), 60
        client.connect(time.time() + 10)
        for _ in range(jobs):
            assert client.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)).startswith("INSERTED")
        begin = time.time()
        world.promote(standby)
        while not standby.serves():
            assert time.time() < begin + 60, "the standby does not catch up"
            time.sleep(0.05)
        taken = time.time() - begin
        found = len(drain(world))
        print(f"a standby behind 100 Mbit/s: {found} of {jobs} jobs of 1 MiB, active {taken:.1f} s after the last put", flush=True)
        return found == jobs
    except BaseException:
        world.show_logs()
        raise
    finally:
        world.close()


def large(program, etcd, longest=None):
    """Puts of small jobs must not wait until a body of 50 MiB is in etcd. All jobs must exist after a takeover.
    `longest` is the longest permitted time of a small put, in seconds. Also returns the longest time."""
    world = World(program, etcd, options=("-z", "64M"))
    try:
        node, body = world.active(), os.urandom(50 << 20)
        large, small = Client(world, "beanstalk"), Client(world, "beanstalk")
        reply, times = [], []
        for client in (large, small):
            client.connect(time.time() + 10)
            client.link.settimeout(60)
        begin = time.time()
        putter = threading.Thread(
            target=lambda: reply.append(large.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))))
        putter.start()
        while putter.is_alive():
            sent = time.time()
            assert small.ask(b"put 9 0 60 1\r\nx\r\n").startswith("INSERTED")
            times.append(time.time() - sent)
            time.sleep(0.005)
        taken = time.time() - begin
        assert reply[0].startswith("INSERTED"), reply
        node.kill()
        found = drain(world)
        print(f"a body of 50 MiB: put in {taken:.1f} s; {len(times)} small puts meanwhile, median "
              f"{sorted(times)[len(times) // 2]:.3f} s, worst {max(times):.2f} s; {len(found)} jobs after a takeover", flush=True)
        return len(found) == len(times) + 1 and body in found and max(times) < (longest or taken / 2), max(times)
    except BaseException:
        world.show_logs()
        raise
    finally:
        world.close()
