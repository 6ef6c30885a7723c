"""Tests the HAProxy and keepalived configurations of the man pages, changing only addresses and ports.

beanpole-cluster(7) contains complete configurations, and beanpole-operate(7) contains another backend for HAProxy. For
keepalived, two network namespaces represent the two machines of the man page, so nothing is changed.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from world import World, free_port

MAN = os.path.join(os.path.dirname(__file__), "..", "..", "man")

# Addresses of the proxy and of two servers. The servers use the same ports.
PROXY, HOSTS = "127.78.0.10", ("127.78.0.1", "127.78.0.2")


def block(page, first):
    """Returns the code block of the page that begins with the line `first`."""
    with open(os.path.join(MAN, page)) as file:
        return re.search(rf"^{first}$.*?(?=^\.Ed$)", file.read(), re.M | re.S).group()


def configuration(page, port, http):
    text = block("beanpole-cluster.7", "defaults")
    if page != "beanpole-cluster.7":
        text = text.split("backend queue\n\n")[0] + "backend beanpole\n\n" + block(page, "backend beanpole")
    for old, new in (("bind :11300", f"bind {PROXY}:{port}"), ("10.0.0.1:11300", f"{HOSTS[0]}:{port}"),
                     ("10.0.0.2:11300", f"{HOSTS[1]}:{port}"), ("port 11380", f"port {http}")):
        assert text.count(old) == 1, f"{old} in {text}"
        text = text.replace(old, new)
    return text


def put(address, patience):
    """Puts a job as soon as the proxy forwards connections to an active server. Returns the waiting time in seconds."""
    begin = time.time()
    while time.time() < begin + patience:
        try:
            with socket.create_connection(address, timeout=1) as link:
                link.sendall(b"put 0 0 60 1\r\nx\r\n")
                if link.recv(100).startswith(b"INSERTED"):
                    return time.time() - begin
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError("the proxy does not find the active server")


def haproxy(program, etcd):
    if not shutil.which("haproxy"):
        print("HAProxy: not tested, because haproxy is not installed", flush=True)
        return not os.environ.get("REQUIRED")
    return all([forwards(program, etcd, page) for page in ("beanpole-cluster.7", "beanpole-operate.7")])


def forwards(program, etcd, page):
    """A connection through HAProxy must reach the active server, and must be closed when that server is stopped."""
    world, port, http, servers = World(program, etcd, names=""), free_port(), free_port(), []
    url = "etcd://" + ",".join(f"127.0.0.1:{client}" for client in world.clients) + "/q"
    try:
        path = os.path.join(world.folder, "haproxy.cfg")
        with open(path, "w") as file:
            file.write(configuration(page, port, http))
        token = os.path.join(world.folder, "token")
        with open(token, "w") as file:
            file.write("a-token-of-the-test\n")
        os.chmod(token, 0o600)
        for name, host in zip("ab", HOSTS):
            command = [program, "--journal", url, "--node", name, "-b", os.path.join(world.folder, name), "-l", host,
                       "-p", str(port), f"--http={host}:{http}", f"--http-token={token}"]
            with open(os.path.join(world.folder, name + ".log"), "ab") as log:
                servers.append(subprocess.Popen(command, stderr=log, stdout=log))
        with open(os.path.join(world.folder, "haproxy.log"), "ab") as log:
            proxy = subprocess.Popen(["haproxy", "-db", "-f", path], stderr=log, stdout=log)
        servers.append(proxy)
        put((PROXY, port), 20)
        times = []
        for fault in (signal.SIGSTOP, signal.SIGKILL):
            held = socket.create_connection((PROXY, port), timeout=15)
            held.sendall(b"reserve-with-timeout 0\r\nwatch other\r\n")
            held.recv(100)
            active = next(server for server, host in zip(servers, HOSTS) if serves(host, port))
            active.send_signal(fault)
            times.append(put((PROXY, port), 20))
            try:
                while held.recv(100):
                    pass
            except ConnectionResetError:
                pass
            active.send_signal(signal.SIGCONT)
            time.sleep(3)
        print(f"HAProxy of {page}: put {times[0]:.1f} s after SIGSTOP and {times[1]:.1f} s after SIGKILL of the active server",
              flush=True)
        return True
    except BaseException:
        for name in ("a", "b", "haproxy"):
            with open(os.path.join(world.folder, name + ".log")) as log:
                print(f"-- the log of {name}:\n{log.read()[-2000:]}", flush=True)
        raise
    finally:
        for server in servers:
            server.send_signal(signal.SIGCONT)
            server.kill()
            server.wait()
        world.close()


def serves(host, port):
    try:
        socket.create_connection((host, port), timeout=1).close()
        return True
    except OSError:
        return False


# The address that keepalived moves, and the address of each machine. etcd runs on the second machine.
FLOATING, MACHINES = "10.0.0.10", {"a": "10.0.0.1", "b": "10.0.0.2"}


class Machine:
    """A network namespace with an address, the programs that run in it, and their logs."""

    def __init__(self, folder, name):
        # The random part of the directory's name is different in each run.
        self.folder, self.name, self.space, self.running = folder, name, f"beanpole-{folder[-8:]}-{name}", {}
        subprocess.run(["ip", "netns", "add", self.space], check=True)

    def connect(self, link):
        """Makes the end `link` of a cable the machine's network interface `eth0`."""
        for words in (["ip", "link", "set", link, "netns", self.space, "name", "eth0"],
                      ["ip", "-n", self.space, "addr", "add", MACHINES[self.name] + "/24", "dev", "eth0"],
                      ["ip", "-n", self.space, "link", "set", "lo", "up"],
                      ["ip", "-n", self.space, "link", "set", "eth0", "up"]):
            subprocess.run(words, check=True)

    def path(self, name):
        return os.path.join(self.folder, f"{self.name}.{name}")

    def start(self, *command):
        name = os.path.basename(command[0])
        with open(self.path(name + ".log"), "ab") as log:
            self.running[name] = subprocess.Popen(["ip", "netns", "exec", self.space, *command], stdout=log, stderr=log)

    def serve(self, program):
        self.start(program, "--journal", f"etcd://{MACHINES['b']}/q", "--node", self.name, "-b", self.path("jobs"),
                   "-l", "0.0.0.0", "--advertise", f"{MACHINES[self.name]}:11300", "--http=127.0.0.1:11380")

    def keep_alive(self, configuration):
        with open(self.path("conf"), "w") as file:
            file.write(configuration)
        self.start("keepalived", "-nlP", "-f", self.path("conf"), "-p", self.path("pid"), "-r", self.path("vrrp.pid"))

    def put(self):
        """Puts a job from this machine as soon as the floating address is that of an active server."""
        code = f"import proxies; print(proxies.put(('{FLOATING}', 11300), 30))"
        done = subprocess.run(["ip", "netns", "exec", self.space, sys.executable, "-Bc", code], cwd=os.path.dirname(__file__),
                              check=True, capture_output=True, text=True)
        return float(done.stdout)

    def remove(self):
        # keepalived ends its processes when it receives SIGTERM.
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait()
        subprocess.run(["ip", "netns", "del", self.space], check=True)


def keepalived(program, etcd):
    """The floating address must move to the other machine when the active server is killed, and back."""
    missing = [name for name in ("keepalived", "ip", "/usr/bin/curl") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        print(f"keepalived: not tested, because the test requires root, keepalived, ip and /usr/bin/curl; missing: {missing}",
              flush=True)
        return not os.environ.get("REQUIRED")
    with tempfile.TemporaryDirectory(prefix="beanpole-keepalived-") as folder:
        machines, times = [], []
        try:
            for name in MACHINES:
                machines.append(Machine(folder, name))
            cable = [f"bp{folder[-8:]}{name}" for name in MACHINES]
            subprocess.run(["ip", "link", "add", cable[0], "type", "veth", "peer", "name", cable[1]], check=True)
            for machine, link in zip(machines, cable):
                machine.connect(link)
            client, peer = (f"http://{MACHINES['b']}:{port}" for port in (2379, 2380))
            machines[1].start(etcd, "--data-dir", os.path.join(folder, "etcd"), "--listen-client-urls", client,
                              "--advertise-client-urls", client, "--listen-peer-urls", peer,
                              "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
            name = os.path.basename(program)
            for machine in machines:
                machine.serve(program)
                machine.keep_alive(block("beanpole-cluster.7", "global_defs {"))
                # The first machine becomes active, and then the second becomes its standby.
                machines[1].put()
            for machine in machines:
                machine.running[name].kill()
                machine.running[name].wait()
                times.append(machines[1].put())
                machine.serve(program)
                time.sleep(3)
            for machine in machines:
                with open(machine.path("keepalived.log")) as log:
                    problems = re.findall("^.*(?:conf: Line|SECURITY|WARNING|Unknown).*$", log.read(), re.M)
                assert not problems, problems
            print(f"keepalived: put {times[0]:.1f} s and {times[1]:.1f} s after SIGKILL of the active server", flush=True)
            return True
        except BaseException:
            for name in sorted(os.listdir(folder)):
                if name.endswith(".log"):
                    with open(os.path.join(folder, name)) as log:
                        print(f"-- {name}:\n{log.read()[-2000:]}", flush=True)
            raise
        finally:
            for machine in machines:
                machine.remove()
