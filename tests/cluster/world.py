"""Three etcd servers, two beanpole servers, and networks between them that tests can cut, delay and make lossy.

All programs listen on free ports of 127.0.0.1 and have their own directories. A proxy simulates each network. Because a
proxy cannot drop packets, it delays a lost packet by the time of a TCP retransmission."""

import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

DOORS = ("beanstalk", "gearman", "workq")

# Kinds of file operations, which the library shim.c can make fail.
CREATE, WRITE, REMOVE = 1, 2, 4

# The sockets that reserve the ports of this process.
RESERVED = []


def free_port():
    """Returns a port that no other process of this machine receives from this function until this process ends, and that
    the system does not choose for outgoing connections. A killed server can therefore be started again at its port.
    An abstract Unix socket with the port in its name reserves the port."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest, highest = map(int, file.read().split())
    ports = range(10000, lowest) if lowest > 12000 else range(highest + 1, 65536)
    for _ in range(10000):
        port = random.choice(ports)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0beanpole-test-port-{port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("", port))
        except OSError:
            claim.close()
            continue
        RESERVED.append(claim)
        return port
    raise OSError("no port is free")


class Wire:
    """The bandwidth that several connections share."""

    def __init__(self):
        # The time per byte in seconds, and the time at which all data sent before has been transferred.
        self.slowness, self.lock, self.free = 0.0, threading.Lock(), 0.0

    def wait(self, length):
        """Returns the seconds until `length` more bytes have been transferred."""
        with self.lock:
            now = time.monotonic()
            self.free = max(now, self.free) + length * self.slowness
            return self.free - now


class Proxy:
    """A network path to one address, used by one beanpole server or by its clients."""

    def __init__(self, target, wires=None):
        # `cut` stops all data, `mute` stops only replies, `deaf` stops only requests, and `loss` is the proportion of
        # lost packets. `delay` is the latency of a packet in seconds.
        self.cut, self.mute, self.deaf, self.loss, self.delay = False, False, False, 0.0, 0.0
        # The bandwidth of requests and of replies.
        self.target, self.wires = target, wires or (Wire(), Wire())
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    def pass_on(self, client):
        # While the network is cut, does not respond at all, like a network without a route.
        while self.cut:
            time.sleep(0.02)
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=1)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()
        self.copy(client, server, False)

    def copy(self, source, sink, is_answer):
        try:
            while data := source.recv(65536):
                wait, again = self.delay, 0.2
                while random.random() < self.loss:
                    wait, again = wait + again, again * 2
                time.sleep(wait + self.wires[is_answer].wait(len(data)))
                while self.cut or (self.mute if is_answer else self.deaf):
                    time.sleep(0.01)
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Node:
    """A beanpole server with its directory, its networks to etcd, and the networks from its clients to it."""

    def __init__(self, world, name):
        self.world, self.name, self.process = world, name, None
        # The state of shim.c: the offset of the wall clock, the time of suspension, the error, and the operations.
        self.numbers = [0, 0, 0, 0]
        self.ports = {door: free_port() for door in DOORS}
        self.port = self.ports["beanstalk"]
        self.folder = os.path.join(world.folder, name)
        self.wires = (Wire(), Wire())
        self.ways = [Proxy(port, self.wires) for port in world.clients]
        self.doors = {door: Proxy(port) for door, port in self.ports.items()}

    def start(self):
        hosts = ",".join(f"127.0.0.1:{way.port}" for way in self.ways)
        self.run(["--journal", f"etcd://{hosts}/q{self.world.query}", "--node", self.name])

    def run(self, options):
        """Starts the program with its directory. Without `options`, the server does not use etcd."""
        command = [self.world.program, *options, "-b", self.folder, "-p", str(self.port), *self.world.options]
        command += [f"--{door}=127.0.0.1:{self.ports[door]}" for door in DOORS[1:]]
        environment = dict(os.environ)
        if self.world.shim:
            self.apply()
            environment.update(LD_PRELOAD=self.world.shim, SHIM=self.folder + ".shim")
        with open(self.log_path(), "ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=environment)
        if self not in self.world.started:
            self.world.started.append(self)

    def apply(self):
        """Gives the numbers to the running program, which has mapped the file."""
        assert self.world.shim
        with open(self.folder + ".shim", "r+b" if os.path.exists(self.folder + ".shim") else "wb") as file:
            file.write(struct.pack("4q", *self.numbers))

    def shift_clock(self, seconds):
        self.numbers[0] = seconds
        self.apply()

    def fail_disk(self, error, operations):
        self.numbers[2:] = [error, operations]
        self.apply()

    def repair_disk(self):
        self.fail_disk(0, 0)

    def log_path(self):
        return os.path.join(self.world.folder, self.name + ".log")

    def log(self):
        with open(self.log_path()) as log:
            return log.read()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def again(self):
        if self.process.poll() is not None:
            self.start()

    def serves(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=0.5):
                return True
        except OSError:
            return False


class World:
    """Several etcd servers, and beanpole servers with the given names. With `has_shim`, shim.c controls the clocks and
    the disks of the servers. With `has_peer_ways`, the etcd servers connect to each other through proxies."""

    def __init__(self, program, etcd, query="", options=("-s", "1M"), etcds=3, names="ab", has_shim=False,
                 has_peer_ways=False):
        self.program, self.etcd, self.query, self.options = program, etcd, query, list(options)
        self.folder = tempfile.mkdtemp(prefix="beanpole-cluster-")
        self.clients, self.peers = [free_port() for _ in range(etcds)], [free_port() for _ in range(etcds)]
        self.servers, self.born, self.nodes = [None] * etcds, [0] * etcds, []
        # All servers that were ever started.
        self.started = []
        self.peer_ways = [Proxy(port) for port in self.peers] if has_peer_ways else []
        self.is_closed, self.shim, self.round = False, None, 0
        self.quota = ["--quota-backend-bytes", query.split("=")[1]] if query else []
        try:
            self.shim = self.compile_shim() if has_shim else None
            for number in range(etcds):
                self.start_etcd(number)
            self.wait_for_etcd()
            self.nodes = [Node(self, name) for name in names]
            for node in self.nodes:
                node.start()
                self.active()
        except BaseException:
            self.close()
            raise

    def compile_shim(self):
        source, library = os.path.join(os.path.dirname(__file__), "shim.c"), os.path.join(self.folder, "shim.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        return library

    def start_etcd(self, number, state="new"):
        advertised = [way.port for way in self.peer_ways] or self.peers
        cluster = ",".join(f"e{i}.{self.born[i]}=http://127.0.0.1:{port}" for i, port in enumerate(advertised))
        client, peer = (f"http://127.0.0.1:{ports[number]}" for ports in (self.clients, self.peers))
        name = f"e{number}.{self.born[number]}"
        with open(os.path.join(self.folder, f"etcd{number}.log"), "ab") as log:
            self.servers[number] = subprocess.Popen(
                [self.etcd, "--name", name, "--data-dir", os.path.join(self.folder, name),
                 "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", f"http://127.0.0.1:{advertised[number]}", "--initial-cluster", cluster,
                 "--initial-cluster-state", state, "--pre-vote", "--heartbeat-interval", "50",
                 "--election-timeout", "500", *self.quota],
                stdout=log, stderr=log)

    def kill_etcd(self, number):
        self.servers[number].kill()
        self.servers[number].wait()

    def etcd_data(self, number):
        return os.path.join(self.folder, f"e{number}.{self.born[number]}")

    def stop_all_etcds(self, meanwhile):
        """Kills all etcd servers, calls `meanwhile` with the directory of each, and starts the servers again."""
        for number in range(len(self.servers)):
            self.kill_etcd(number)
        for number in range(len(self.servers)):
            meanwhile(self.etcd_data(number))
        for number in range(len(self.servers)):
            self.start_etcd(number)
        self.wait_for_etcd()

    def replace_etcd(self, number):
        """Simulates the loss of an etcd machine with its disk, and adds a new machine."""
        self.kill_etcd(number)
        # Waits for an election, because the lost machine may have been the leader.
        time.sleep(3)
        other = (number + 1) % len(self.servers)
        members = self.ask_etcd(other, "/v3/cluster/member/list")["members"]
        gone = next(member for member in members if member.get("name") == f"e{number}.{self.born[number]}")
        self.ask_etcd(other, "/v3/cluster/member/remove", {"ID": gone["ID"]})
        self.ask_etcd(other, "/v3/cluster/member/add", {"peerURLs": [f"http://127.0.0.1:{self.peers[number]}"]})
        self.born[number] += 1
        self.start_etcd(number, "existing")

    def ask_etcd(self, number, path, request=None):
        body = json.dumps(request or {}).encode()
        with socket.create_connection(("127.0.0.1", self.clients[number]), timeout=20) as link:
            link.sendall(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body))
            answer = b""
            while data := link.recv(65536):
                answer += data
            return json.loads(answer.split(b"\r\n\r\n", 1)[1])

    def wait_for_etcd(self):
        end = time.time() + 60
        while time.time() < end:
            try:
                if all("leader" in self.ask_etcd(number, "/v3/maintenance/status") for number in range(len(self.servers))):
                    return
            except (OSError, ValueError, IndexError):
                pass
            time.sleep(0.1)
        raise SystemExit("etcd does not start")

    def leader(self):
        for number in range(len(self.servers)):
            try:
                status = self.ask_etcd(number, "/v3/maintenance/status")
                if status.get("leader") == status["header"]["member_id"]:
                    return number
            except (OSError, ValueError, KeyError, IndexError):
                pass
        return 0

    def cluster(self, *words):
        """Runs `beanpole cluster`, which connects to etcd directly. Returns the output."""
        done = self.try_cluster(*words)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def try_cluster(self, *words):
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.clients)
        command = [self.program, "cluster", words[0], f"etcd://{hosts}/q{self.query}", *words[1:]]
        return subprocess.run(command, capture_output=True, text=True)

    def promote(self, node):
        """Makes a server active as soon as its copy is up to date."""
        end = time.time() + 30
        while (done := self.try_cluster("promote", node.name)).returncode != 0:
            assert "entries behind" in done.stderr and time.time() < end, done.stderr
            time.sleep(0.2)

    def epoch(self):
        return int(self.cluster("status").split()[1].rstrip(","))

    def active(self):
        end = time.time() + 60
        while time.time() < end:
            for node in self.nodes:
                if node.process and node.process.poll() is None and node.serves():
                    return node
            time.sleep(0.05)
        raise SystemExit("no server is active")

    def wait(self, is_done, problem, patience=30):
        end = time.time() + patience
        while not is_done():
            assert time.time() < end, problem
            time.sleep(0.005)

    def standby(self):
        active = self.active()
        return next(node for node in self.nodes if node is not active)

    def show_logs(self):
        for node in self.nodes:
            print(f"-- the log of {node.name}:\n" + node.log()[-3000:], file=sys.stderr)

    def close(self):
        self.is_closed = True
        for node in self.started:
            node.signal(signal.SIGCONT)
            node.kill()
        for server in filter(None, self.servers):
            server.send_signal(signal.SIGCONT)
            server.kill()
            server.wait()
        shutil.rmtree(self.folder)
