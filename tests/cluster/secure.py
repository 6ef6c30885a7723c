"""Tests a single etcd with TLS, a user and a password. openssl creates the certificates."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from world import free_port


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_certificates(folder):
    """Creates an authority, a certificate for 127.0.0.1 signed by the authority, and an unrelated authority."""
    for name in ("ca", "other"):
        openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3",
                "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    openssl(folder, "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", "server.key", "-out", "server.csr", "-subj", "/O=etcd")
    with open(os.path.join(folder, "names"), "w") as file:
        file.write("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "3", "-extfile", "names", "-out", "server.pem")


class Etcd:
    def __init__(self, etcd, folder, demands_certificate):
        self.folder, self.port = folder, free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        path = lambda name: os.path.join(folder, name)
        peer = f"http://127.0.0.1:{free_port()}"
        command = [etcd, "--name", "e", "--data-dir", path("data"), "--listen-client-urls", self.url,
                   "--advertise-client-urls", self.url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", f"e={peer}", "--cert-file", path("server.pem"), "--key-file", path("server.key")]
        command += ["--client-cert-auth", "--trusted-ca-file", path("ca.pem")] if demands_certificate else []
        self.context = ssl.create_default_context(cafile=path("ca.pem"))
        self.context.load_cert_chain(path("server.pem"), path("server.key"))
        with open(path("etcd.log"), "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(self, path, request=None, token=None):
        headers = {"Authorization": token} if token else {}
        asked = urllib.request.Request(self.url + path, json.dumps(request or {}).encode(), headers)
        with urllib.request.urlopen(asked, timeout=5, context=self.context) as answer:
            return json.load(answer)

    def wait(self):
        end = time.time() + 30
        while time.time() < end:
            try:
                return self.ask("/v3/maintenance/status")
            except (OSError, urllib.error.URLError):
                time.sleep(0.1)
        raise SystemExit("etcd does not start")

    def demand_login(self):
        """Creates an administrator, and a user with full access to the keys of the queue."""
        import base64
        encode = lambda text: base64.b64encode(text.encode()).decode()
        for user, role, password in (("root", "root", "very secret"), ("queue", "queue", "secret")):
            self.ask("/v3/auth/user/add", {"name": user, "password": password})
            self.ask("/v3/auth/role/add", {"name": role})
            self.ask("/v3/auth/user/grant", {"user": user, "role": role})
        permission = {"permType": "READWRITE", "key": encode("beanpole/"), "range_end": encode("beanpole0")}
        self.ask("/v3/auth/role/grant", {"name": "queue", "perm": permission})
        self.ask("/v3/auth/enable")


def speak(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        link.sendall(text)
        return link.recv(1000)


def serve(program, url, folder, name):
    """Runs a beanpole server. Returns its reply to a put, and its log."""
    port = free_port()
    log_path = os.path.join(folder, name + ".log")
    with open(log_path, "ab") as log:
        command = [program, "--journal", url, "-b", os.path.join(folder, name), "-p", str(port), "--node", name]
        process = subprocess.Popen(command, stderr=log)
    answer, end = b"", time.time() + 8
    try:
        while not answer and time.time() < end and process.poll() is None:
            try:
                answer = speak(port, b"put 0 0 60 1\r\nx\r\n")
            except OSError:
                time.sleep(0.1)
    finally:
        process.terminate()
        process.wait()
    with open(log_path) as log:
        return answer, log.read()


def one(program, etcd, demands_certificate):
    folder = tempfile.mkdtemp(prefix="beanpole-secure-")
    server = None
    try:
        make_certificates(folder)
        server = Etcd(etcd, folder, demands_certificate)
        server.wait()
        server.demand_login()
        host = f"127.0.0.1:{server.port}"
        own = f"&cert={folder}/server.pem&key={folder}/server.key" if demands_certificate else ""
        good = f"etcds://queue:secret@{host}/q?ca={folder}/ca.pem{own}"
        answer, log = serve(program, good, folder, "good")
        assert answer.startswith(b"INSERTED"), (answer, log)
        answer, log = serve(program, good, folder, "good")
        assert answer.startswith(b"INSERTED 2"), (answer, log)
        wrong = {"no authority": (good.replace("ca.pem", "other.pem"), "certificate"),
                 "no password": (good.replace(":secret@", ":wrong@"), "refuses user and password"),
                 "no TLS": (f"etcd://queue:secret@{host}/q", "etcd at")}
        if demands_certificate:
            wrong["no certificate"] = (good.replace(own, ""), "etcd at")
        for name, (url, words) in wrong.items():
            answer, log = serve(program, url, folder, name.replace(" ", "-"))
            assert not answer and words in log, (name, answer, log)
        print(f"TLS, user and password{', certificate of the client' * demands_certificate}: served; "
              f"refused with {', '.join(wrong)}", flush=True)
    except BaseException:
        if server:
            with open(os.path.join(folder, "etcd.log")) as log:
                print(log.read()[-1500:])
        raise
    finally:
        if server:
            server.process.kill()
            server.process.wait()
        shutil.rmtree(folder)


def hold(program, etcd):
    one(program, etcd, False)
    one(program, etcd, True)
    return True
