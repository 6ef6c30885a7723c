"""Measures the cost of a shared queue and the duration of a takeover, without faults."""

import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from load import Client
from world import World, free_port

# Duration of one measurement in seconds.
SECONDS = 5

PUT = b"put 0 0 60 64\r\n" + b"x" * 64 + b"\r\n"


def cpu(process):
    """Returns the processor time that a process has used, in seconds."""
    with open(f"/proc/{process.pid}/stat") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def puts(port, connections):
    """Returns the number of acknowledged puts and the duration in seconds. Each connection waits for each reply."""
    links = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    poll, by_file, count = select.epoll(), {}, 0
    for link in links:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(link, select.EPOLLIN)
        by_file[link.fileno()] = link
        link.sendall(PUT)
    begin = time.time()
    while time.time() < begin + SECONDS:
        for file, _ in poll.poll(1):
            link = by_file[file]
            count += link.recv(4096).count(b"INSERTED")
            link.sendall(PUT)
    taken = time.time() - begin
    for link in links:
        link.close()
    return count, taken


def figure(port, key):
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"stats\r\nquit\r\n")
        text = b""
        while data := link.recv(65536):
            text += data
    for line in text.decode().splitlines():
        if line.startswith(key + ": "):
            return int(line.split(": ")[1])
    return 0


def measure_one(title, port, processes, engines):
    for connections in (1, 16, 64):
        before = [sum(map(cpu, group)) for group in (processes, engines)]
        entries = figure(port, "journal-entries-written")
        count, taken = puts(port, connections)
        entries = figure(port, "journal-entries-written") - entries
        after = [sum(map(cpu, group)) for group in (processes, engines)]
        own, others = ((late - early) * 1e6 / count for early, late in zip(before, after))
        print(f"{title}, {connections:2} connections: {count / taken:6.0f} puts/s, {entries / taken:4.0f} appends/s, "
              f"{own:5.1f} us of CPU in beanpole and {others:5.1f} us in etcd for each put", flush=True)


def measure(program, etcd):
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [program, "-b", folder, "-f0", "-p", str(port)]
        alone = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            measure_one("alone, -f0  ", port, [alone], [])
        finally:
            alone.kill()
            alone.wait()
    world = World(program, etcd, options=())
    try:
        measure_one("with journal", world.active().port, [node.process for node in world.nodes], world.servers)
    finally:
        world.close()


def fill_in_batches(port, count):
    """Puts `count` jobs in large batches."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        left, breath = count, 1000
        while left > 0:
            now = min(left, breath)
            link.sendall(PUT * now)
            seen = 0
            while seen < now:
                seen += link.recv(1 << 20).count(b"\n")
            left -= now


def fill_separately(port, count):
    """Puts `count` jobs, each in a separate entry."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            link.sendall(PUT)
            assert link.recv(4096).startswith(b"INSERTED")


def restart(program, etcd, count):
    """Compares the restarts of two single servers with the same jobs: one job for each entry, and many. Returns the
    times of the restarts."""
    small, large = (restart_one(program, etcd, count, fill) for fill in (fill_separately, fill_in_batches))
    ratio = statistics.median(small) / statistics.median(large)
    print(f"small entries take {ratio:.2f} times as long as large entries", flush=True)
    return small, large


def restart_one(program, etcd, count, fill):
    """Kills a single server three times. Returns the times in seconds until the restarted server replies."""
    world, times = World(program, etcd, options=(), names="a", etcds=1), []
    try:
        node = world.nodes[0]
        fill(node.port, count)
        entries = figure(node.port, "journal-entries-written")
        # Waits, because the server merges entries twice per second.
        time.sleep(2)
        for _ in range(3):
            before = cpu(world.servers[0])
            node.kill()
            begin = time.time()
            node.start()
            while not node.serves():
                time.sleep(0.002)
            times.append(time.time() - begin)
            assert figure(node.port, "current-jobs-ready") == count
            print(f"{count:8} jobs in {entries} entries: {times[-1]:.2f} s after SIGKILL, {cpu(node.process):.2f} s of CPU in "
                  f"beanpole and {cpu(world.servers[0]) - before:.2f} s in etcd", flush=True)
        return times
    finally:
        world.close()


def position(world, name):
    for line in world.cluster("status").splitlines():
        words = line.split("\t")
        if words[0] == name:
            return int(words[2])
    return 0


def take_over(program, etcd, counts):
    """Kills the active server of queues of different sizes. Measures the time until another server delivers a job."""
    for count in counts:
        world = World(program, etcd, options=())
        try:
            active, standby = world.active(), world.standby()
            fill_in_batches(active.port, count)
            time.sleep(3)
            while position(world, standby.name) < position(world, active.name) - 50:
                time.sleep(0.5)
            begin = time.time()
            active.signal(signal.SIGKILL)
            active.process.wait()
            while not standby.serves():
                time.sleep(0.002)
            client = Client(world, "beanstalk")
            client.turn = world.nodes.index(standby)
            client.connect(time.time() + 60)
            assert client.ask(b"reserve-with-timeout 0\r\n").startswith("RESERVED")
            taken = time.time() - begin
            assert figure(standby.port, "current-jobs-ready") == count - 1
            lines = [line for line in standby.log().splitlines() if "active as" in line or "100 % read" in line]
            print(f"{count:8} jobs: {taken:.2f} s after SIGKILL\n    " + "\n    ".join(lines), flush=True)
        except BaseException:
            print(world.nodes[0].log()[-2000:], world.nodes[1].log()[-2000:], file=sys.stderr)
            raise
        finally:
            world.close()
