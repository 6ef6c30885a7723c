"""Tests gear (PyPI), a library of OpenStack. The library sends SET_CLIENT_ID, sends GRAB_JOB_UNIQ immediately after
registering a function, and uses the text protocol on the same connection."""

import threading
import time

import gear

import checks
from checks import ok, same


class Client(gear.Client):
    """A client that records the outcomes of jobs in order."""

    def __init__(self):
        super().__init__("client")
        self.ended = []
        self.addServer(checks.HOST, checks.PORT, *checks.TLS)
        self.waitForServer(timeout=10)

    def handleWorkComplete(self, packet):
        self.ended.append(super().handleWorkComplete(packet))

    def handleWorkFail(self, packet):
        self.ended.append(super().handleWorkFail(packet))

    def handleWorkException(self, packet):
        self.ended.append(super().handleWorkException(packet))


def worker(name, *functions):
    w = gear.Worker(name)
    w.addServer(checks.HOST, checks.PORT, *checks.TLS)
    w.waitForServer(timeout=10)
    for function in functions:
        w.registerFunction(function)
    return w


def until(condition, what):
    end = time.monotonic() + 10
    while not condition():
        ok(time.monotonic() < end, what)
        time.sleep(0.005)


def admin(client, request):
    client.active_connections[0].sendAdminRequest(request)
    return request.response


def foreground(name):
    c, w = Client(), worker("w", name)
    job = gear.Job(name.encode(), b"hello\0\xff")
    c.submitJob(job, timeout=10)
    got = w.getJob()
    same((got.name, got.arguments, got.handle), (name, b"hello\0\xff", job.handle), "the job")
    got.sendWorkData(b"part")
    got.sendWorkWarning(b"careful")
    got.sendWorkStatus(1, 2)
    got.sendWorkComplete(b"done")
    until(lambda: c.ended, "the job ends")
    ok(job.complete and not job.failure, "complete")
    same((job.data, job.numerator, job.denominator), ([b"part", b"careful", b"done"], b"1", b"2"), "data and status")
    c.shutdown(), w.shutdown()


def sleeping(name):
    """Starts the worker before the submission, which must wake the sleeping worker."""
    c, w = Client(), worker("w", name)
    done = []
    thread = threading.Thread(target=lambda: done.append(w.getJob()), daemon=True)
    thread.start()
    time.sleep(0.2)
    for number in range(50):
        c.submitJob(gear.Job(name.encode(), b"%d" % number), timeout=10)
        until(lambda: done, "the worker is woken")
        job = done.pop()
        same(job.arguments, b"%d" % number, "in order")
        job.sendWorkComplete(b"")
        thread.join()
        thread = threading.Thread(target=lambda: done.append(w.getJob()), daemon=True)
        thread.start()
    until(lambda: len(c.ended) == 50, "all jobs end")
    c.shutdown(), w.shutdown()


def failure(name):
    c, w = Client(), worker("w", name)
    for end in ("fail", "exception"):
        job = gear.Job(name.encode(), b"")
        c.submitJob(job, timeout=10)
        got = w.getJob()
        got.sendWorkFail() if end == "fail" else got.sendWorkException(b"why")
        until(lambda: job.complete, f"{end} ends the job")
        ok(job.failure, end)
    c.shutdown(), w.shutdown()


def priorities(name):
    c = Client()
    for body, precedence in [(b"3", gear.PRECEDENCE_LOW), (b"2", gear.PRECEDENCE_NORMAL), (b"1", gear.PRECEDENCE_HIGH)]:
        c.submitJob(gear.Job(name.encode(), body), background=True, precedence=precedence, timeout=10)
    w = worker("w", name)
    got = [w.getJob() for _ in range(3)]
    same([job.arguments for job in got], [b"1", b"2", b"3"], "order")
    [job.sendWorkComplete() for job in got]
    c.shutdown(), w.shutdown()


def unique(name):
    c, w = Client(), None
    one, two = (gear.Job(name.encode(), body, unique=b"same") for body in (b"a", b"b"))
    c.submitJob(one, timeout=10)
    c.submitJob(two, timeout=10)
    same(one.handle, two.handle, "one job")
    w = worker("w", name)
    got = w.getJob()
    same((got.arguments, got.unique), (b"a", b"same"), "the first")
    got.sendWorkComplete(b"x")
    until(lambda: one.complete or two.complete, "the job ends")
    c.shutdown(), w.shutdown()


def worker_lost(name):
    c, w = Client(), worker("w", name)
    job = gear.Job(name.encode(), b"again")
    c.submitJob(job, timeout=10)
    same(w.getJob().arguments, b"again", "the first time")
    w.shutdown()
    ok(not job.complete, "the job is not complete")
    v = worker("v", name)
    got = v.getJob()
    same((got.arguments, got.handle), (b"again", job.handle), "the second time")
    got.sendWorkComplete(b"")
    until(lambda: job.complete, "the job ends")
    c.shutdown(), v.shutdown()


def text(name):
    c, w = Client(), worker("the-worker", name)
    until(lambda: f"{name}\t0\t0\t1\n".encode() in admin(c, gear.StatusAdminRequest()), "the worker is registered")
    for _ in range(2):
        c.submitJob(gear.Job(name.encode(), b"x"), background=True, timeout=10)
    status = admin(c, gear.StatusAdminRequest())
    ok(f"{name}\t2\t0\t1\n".encode() in status or f"{name}\t2\t1\t1\n".encode() in status, f"status: {status}")
    ok(b"OK" in admin(c, gear.VersionAdminRequest()), "version")
    workers = admin(c, gear.WorkersAdminRequest())
    ok(f" the-worker : {name}\n".encode() in workers, f"workers: {workers}")
    ok(b"\t0\t0\t1\n" in admin(c, gear.ShowJobsAdminRequest()), "show jobs")
    job = gear.Job(name.encode(), b"cancel me")
    c.submitJob(job, timeout=10)
    same(admin(c, gear.CancelJobAdminRequest(job.handle)), b"OK\r\n", "cancel job")
    until(lambda: job.complete, "the job ends")
    ok(job.failure, "a cancelled job has failed")
    same(admin(c, gear.CancelJobAdminRequest(b"H:x:1")), b"ERR UNKNOWN_JOB\r\n", "cancel a job that does not exist")
    [w.getJob().sendWorkComplete() for _ in range(2)]
    c.shutdown(), w.shutdown()


def status(name):
    c, w = Client(), worker("w", name)
    job = gear.Job(name.encode(), b"")
    c.submitJob(job, background=True, timeout=10)
    got = w.getJob()
    got.sendWorkStatus(3, 10)
    time.sleep(0.1)
    packet = gear.Packet(gear.constants.REQ, gear.constants.GET_STATUS, job.handle)
    seen = []
    c.handleStatusRes = lambda packet: seen.append(packet.data)
    c.active_connections[0].sendPacket(packet)
    until(lambda: seen, "a reply")
    same(seen, [job.handle + b"\0001\0001\0003\00010"], "status")
    got.sendWorkComplete()
    c.shutdown(), w.shutdown()


checks.run([foreground, sleeping, failure, priorities, unique, worker_lost, text, status])
