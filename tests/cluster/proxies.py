"""Tests the HAProxy configurations of the man pages, changing only addresses and ports.

beanpole-cluster(7) contains a complete configuration, and beanpole-operate(7) contains another backend for it.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
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
        return True
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
