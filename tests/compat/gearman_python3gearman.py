"""Tests python3-gearman (PyPI). Its workers send WORK_EXCEPTION followed by WORK_FAIL, and close the connection after
an ERROR packet."""

import threading
import time

import python3_gearman as gearman
from python3_gearman.constants import JOB_COMPLETE, JOB_FAILED, PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_NONE

import checks
from checks import ok, same

ADDRESS = [f"{checks.HOST}:{checks.PORT}"]


class Worker(gearman.GearmanWorker):
    stopped = False
    errors = 0

    def after_poll(self, any_activity):
        return not self.stopped

    def on_job_exception(self, current_job, exc_info):
        Worker.errors += 1
        return super().on_job_exception(current_job, exc_info)


def serving(**functions):
    w = Worker(ADDRESS)
    for function, call in functions.items():
        w.register_task(function, call)
    thread = threading.Thread(target=lambda: w.work(poll_timeout=0.1), daemon=True)
    thread.start()

    def stop():
        w.stopped = True
        thread.join(5)
        w.shutdown()

    return stop


def foreground(name):
    stop = serving(f=lambda worker, job: job.data[::-1])
    c = gearman.GearmanClient(ADDRESS)
    request = c.submit_job("f", "hello", poll_timeout=10)
    same((request.state, request.result), (JOB_COMPLETE, "olleh"), "the result")
    requests = c.submit_multiple_jobs([{"task": "f", "data": f"ab{n}"} for n in range(50)], poll_timeout=20)
    same([r.result for r in requests], [f"ab{n}"[::-1] for n in range(50)], "50 results")
    stop()


def background(name):
    seen = []
    c = gearman.GearmanClient(ADDRESS)
    c.submit_job("bg", "3", background=True, priority=PRIORITY_LOW, poll_timeout=10)
    c.submit_job("bg", "2", background=True, priority=PRIORITY_NONE, poll_timeout=10)
    last = c.submit_job("bg", "1", background=True, priority=PRIORITY_HIGH, poll_timeout=10)
    status = c.get_job_status(last, poll_timeout=10)
    ok(status.status["known"] and not status.status["running"], "queued")

    def take(worker, job):
        worker.send_job_status(job, 1, 4)
        seen.append(job.data)
        return ""

    stop = serving(bg=take)
    end = time.monotonic() + 10
    while len(seen) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    same(seen, ["1", "2", "3"], "priorities")
    time.sleep(0.2)
    ok(not c.get_job_status(last, poll_timeout=10).status["known"], "gone")
    stop()


def exception_and_then_failure(name):
    """The worker sends WORK_EXCEPTION and WORK_FAIL. The server must not reply to WORK_FAIL with ERROR, after which the
    worker would close the connection."""

    def fail(worker, job):
        raise ValueError("why")

    stop = serving(bad=fail, good=lambda worker, job: "fine")
    c = gearman.GearmanClient(ADDRESS)
    start = time.monotonic()
    for _ in range(5):
        same(c.submit_job("bad", "", poll_timeout=10).state, JOB_FAILED, "an exception")
        same(c.submit_job("good", "", poll_timeout=10).result, "fine", "the worker still works")
    ok(time.monotonic() - start < 5, "the worker did not reconnect")
    stop()


def unique(name):
    c = gearman.GearmanClient(ADDRESS)
    handles = [c.submit_job("u", "x", unique="same", background=True, poll_timeout=10).job.handle for _ in range(3)]
    same(len(set(handles)), 1, "one job")
    admin = gearman.GearmanAdminClient(ADDRESS)
    status = {row["task"]: (row["queued"], row["running"], row["workers"]) for row in admin.get_status()}
    same(status["u"], (1, 0, 0), "status")
    ok(admin.get_version(), "version")
    ok(len(admin.get_workers()) >= 1, "workers")
    stop = serving(u=lambda worker, job: "")
    stop()


checks.run([foreground, background, exception_and_then_failure, unique])
