"""Setups and workloads that need their own cluster: relays, a binlog that does not fit into etcd, two etcd clusters in one
URL, a single client whose entries are purged, and the restart of a single server."""

import signal
import time
import uuid

import figures
from load import Client, drain, end_of
from world import Node, Proxy, World


def roles(world):
    """Returns the role of each server according to `beanpole cluster status`."""
    lines = [line.split("\t") for line in world.cluster("status").splitlines()[1:]]
    return {words[0]: words[1] for words in lines if len(words) > 1}


def put_with_all_protocols(world, relay, body, end):
    """Puts a job with each protocol as soon as the relay forwards it."""
    for door in ("beanstalk", "gearman", "workq"):
        client, is_done = Client(world, door, relay), False
        while not is_done:
            assert time.time() < end, f"the relay does not forward {door}"
            try:
                client.connect(end)
                if door == "beanstalk":
                    is_done = client.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)).startswith("INSERTED")
                elif door == "gearman":
                    client.packet(18, b"gearman", b"", body)
                    is_done = client.hear()[0] == 8
                else:
                    words = (str(uuid.uuid4()).encode(), len(body), body)
                    is_done = client.ask(b"add %s workq 2000 600000 %d\r\n%s\r\n" % words) == "+OK"
            except OSError:
                pass
            client.drop()


def threads(node):
    with open(f"/proc/{node.process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Threads:"))


def active_and_relay(world):
    """Waits until one server is active and the others are standbys. Returns the active server and one of the others."""
    world.wait(lambda: sorted(roles(world).values()) == ["active", "standby", "standby"], "the servers are not ready", 60)
    names = roles(world)
    return [next(node for node in world.nodes if names[node.name] == role) for role in ("active", "standby")]


def relay(program, etcd):
    """Clients that know only a relay must reach the active server, also after that server was suspended or killed. The
    killed server must not forward connections to itself when it is started again."""
    world = World(program, etcd, options=("-s", "1M", "--relay", "-l", "127.0.0.1"), names="abc")
    try:
        active, chosen = active_and_relay(world)
        put_with_all_protocols(world, chosen, b"first", time.time() + 20)
        worker = Client(world, "beanstalk", chosen)
        worker.connect(time.time() + 5)
        worker.ask(b"watch idle\r\n")
        worker.ask(b"ignore default\r\n")
        worker.link.sendall(b"reserve\r\n")
        # The connections of a suspended server stay open, like those of a machine that was switched off.
        active.signal(signal.SIGSTOP)
        begin = time.time()
        assert end_of(worker.link, 15) == b"", "a forwarded connection outlives the active server"
        closed = time.time() - begin
        put_with_all_protocols(world, chosen, b"second", time.time() + 20)
        active.signal(signal.SIGCONT)
        time.sleep(4)
        active, chosen = active_and_relay(world)
        active.kill()
        begin = time.time()
        active.start()
        world.wait(active.serves, "the killed server does not start")
        clients, most = [Client(world, "beanstalk", active) for _ in range(25)], 0
        for client in clients:
            client.connect(time.time() + 5)
        while time.time() < begin + 4:
            most = max(most, threads(active))
            time.sleep(0.05)
        assert most < 100, f"{most} threads of a server that forwards connections to itself"
        put_with_all_protocols(world, chosen, b"third", time.time() + 20)
        found = drain(world)
        print(f"relays: forwarded connections closed {closed:.1f} s after SIGSTOP of the active server, at most {most} threads "
              f"of the killed server, {len(found)} jobs", flush=True)
        return all(found.count(body) >= 3 for body in (b"first", b"second", b"third"))
    except BaseException:
        world.show_logs()
        raise
    finally:
        world.close()


def too_large(program, etcd):
    """A binlog of 60 MB must be refused by an etcd with a quota of 40 MB before anything is written."""
    world, jobs = World(program, etcd, query="?quota=41943040", names=""), 1000
    try:
        node = Node(world, "a")
        world.nodes = [node]
        node.run([])
        world.active()
        client, body = Client(world, "beanstalk"), b"x" * 60000
        client.connect(time.time() + 10)
        for _ in range(jobs):
            assert client.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)).startswith("INSERTED")
        client.drop()
        node.signal(signal.SIGTERM)
        assert node.process.wait(timeout=20) == 0
        node.start()
        world.wait(lambda: "increase the quota" in node.log(), "the size is not reported")
        time.sleep(3)
        assert not node.serves()
        assert "alarms" not in world.ask_etcd(0, "/v3/maintenance/alarm", {"action": "GET"}), "etcd reached its quota"
        size = int(world.ask_etcd(0, "/v3/maintenance/status")["dbSize"])
        assert size < 4_000_000, f"{size} bytes were written"
        node.signal(signal.SIGTERM)
        assert node.process.wait(timeout=20) == 0
        node.run([])
        world.active()
        found = len(drain(world))
        print(f"a binlog larger than etcd's quota: refused, {found} of {jobs} jobs without etcd", flush=True)
        return found == jobs
    except BaseException:
        world.show_logs()
        raise
    finally:
        world.close()


def separate(program, etcd):
    """If a URL names two etcd clusters, no server must become active."""
    world, other = World(program, etcd, etcds=1, names=""), None
    try:
        other = World(program, etcd, etcds=1, names="")
        world.nodes = [Node(world, name) for name in "ab"]
        for node in world.nodes:
            node.ways.append(Proxy(other.clients[0]))
        world.nodes[1].ways.reverse()
        for node in world.nodes:
            node.start()
        for node in world.nodes:
            world.wait(lambda: "are different clusters" in node.log(), f"{node.name} does not report the two clusters")
        time.sleep(2)
        assert not any(node.serves() for node in world.nodes), "a server is active"
        print("two etcd clusters in one URL: refused", flush=True)
        return True
    except BaseException:
        world.show_logs()
        raise
    finally:
        world.close()
        if other:
            other.close()


def purge(program, etcd):
    """A single client makes an entry of each command. When these entries are purged, the server must stay active.
    Also returns the longest time of a put and a delete."""
    world, jobs = World(program, etcd), 10_000
    try:
        node, epoch, longest = world.active(), world.epoch(), 0.0
        client = Client(world, "beanstalk", node)
        client.patience = 30
        client.connect(time.time() + 5)
        for _ in range(jobs):
            begin = time.time()
            job = client.ask(b"put 0 0 60 1\r\nx\r\n").split()[1]
            assert client.ask(b"delete %s\r\n" % job.encode()) == "DELETED"
            longest = max(longest, time.time() - begin)
        time.sleep(3)
        switches = world.epoch() - epoch
        print(f"purge: {jobs} puts and deletes of a single client, longest pair {longest:.2f} s, {switches} switches", flush=True)
        return switches == 0, longest
    except BaseException:
        world.show_logs()
        raise
    finally:
        world.close()


def restart(program, etcd, count=20_000, longest=None):
    """Compares the restarts of single servers with the same jobs in small and in large entries. `longest` is the longest
    permitted time of a restart in seconds; if it is given, small entries may take at most twice as long as large ones.
    Also returns the longest restart with small entries."""
    small, large = figures.restart(program, etcd, count)
    is_fast = longest is None or (max(small) <= longest and sum(small) <= 2 * max(sum(large), 0.3))
    return is_fast, max(small)
