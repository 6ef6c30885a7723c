"""Tests the transport with a real server and real Celery workers, some of which are killed."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import greenstalk
from celery import Celery

import beanpole_transport  # noqa: F401

app = Celery("test_transport", broker="beanpole://" + os.environ.get("BEANPOLE_SERVER", "127.0.0.1:11300"))
app.conf.update(
    worker_enable_remote_control=False, task_acks_late=True, task_reject_on_worker_lost=True,
    task_acks_on_failure_or_timeout=False, worker_prefetch_multiplier=1, broker_transport_options={"ttr": 6},
    broker_connection_retry_on_startup=True,
)
OUTPUT = os.environ.get("OUTPUT")


def write(text):
    with open(OUTPUT, "a") as file:
        file.write(f"{text}\n")


@app.task
def note(text):
    write(text)


@app.task
def sleep(text, seconds):
    write(f"{text} starts")
    time.sleep(seconds)
    write(f"{text} ends")


@app.task
def broken():
    raise ValueError("broken")


@app.task(bind=True)
def tries_twice(self):
    write(f"try {self.request.retries}")
    if self.request.retries == 0:
        raise self.retry(countdown=1)


class TransportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = os.environ.get("BEANPOLE", "beanpole")
        cls.server = subprocess.Popen(
            [program, "-p", "0", "--ready-fd", "1", "--exit-with-parent"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        cls.address = cls.server.stdout.readline().split()[0]
        app.conf.broker_url = f"beanpole://{cls.address}"

    @classmethod
    def tearDownClass(cls):
        app.close()
        cls.server.kill()
        cls.server.wait()
        cls.server.stdout.close()

    def setUp(self):
        host, port = self.address.rsplit(":", 1)
        self.queue = greenstalk.Client((host, int(port)), use="celery")
        self.addCleanup(self.queue.close)
        self.queue._send_cmd(b"flush-tube celery", b"FLUSHED")
        self.output = tempfile.NamedTemporaryFile("r")
        self.addCleanup(self.output.close)
        self.environment = {**os.environ, "BEANPOLE_SERVER": self.address, "OUTPUT": self.output.name}

    def worker(self):
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "test_transport", "worker", "-c", "2", "--without-gossip",
             "--without-mingle", "--without-heartbeat"],
            env=self.environment, cwd=os.path.dirname(os.path.abspath(__file__)), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.addCleanup(worker.wait)
        self.addCleanup(self.kill, worker)
        return worker

    def kill(self, worker):
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)

    def lines(self):
        with open(self.output.name) as file:
            return file.read().splitlines()

    def until(self, condition):
        end = time.monotonic() + 300
        while not condition():
            self.assertLess(time.monotonic(), end, self.lines())
            time.sleep(0.02)

    def figure(self, name):
        try:
            return self.queue.stats_tube("celery")[f"current-jobs-{name}"]
        except greenstalk.NotFoundError:
            return 0

    def is_empty(self):
        return not any(self.figure(name) for name in ("ready", "reserved", "delayed", "buried"))

    def test_each_task_runs_once_and_is_deleted(self):
        for number in range(30):
            note.delay(str(number))
        self.assertEqual(self.figure("ready"), 30)
        self.worker()
        self.until(self.is_empty)
        self.assertEqual(sorted(map(int, self.lines())), list(range(30)))

    def test_the_server_keeps_a_delayed_task(self):
        note.apply_async(["later"], countdown=3000)
        self.assertEqual(self.figure("delayed"), 1)
        self.worker()
        job = self.queue.peek_delayed()
        self.assertGreater(self.queue.stats_job(job)["time-left"], 2900)
        self.queue.kick_job(job)
        note.apply_async(["urgent"], priority=9)
        self.until(lambda: "urgent" in self.lines())

    def test_a_retry_is_not_dropped_as_a_duplicate(self):
        for _ in range(2):
            tries_twice.apply_async(headers={"tags": "idp:welcome-7:3600"})
        self.assertEqual(self.figure("ready"), 1)
        self.worker()
        self.until(lambda: self.lines() == ["try 0", "try 1"])
        self.until(self.is_empty)

    def test_a_failure_is_retried_by_the_tube(self):
        self.queue._send_cmd(b"set-tube celery try:5:1000 dead:celery-dead", b"SET")
        self.addCleanup(self.queue._send_cmd, b"set-tube celery", b"SET")
        broken.delay()
        self.worker()
        self.until(lambda: self.figure("delayed") == 1)
        self.assertEqual(self.queue.stats_job(self.queue.peek_delayed())["fails"], 1)

    def test_a_job_of_another_program_fails_with_a_reason(self):
        self.addCleanup(self.queue._send_cmd, b"flush-buried celery", b"FLUSHED")
        jobs = [self.queue.put(body) for body in (b"caf\xe9", b"hello", b"[]", b"{}")]
        self.worker()
        self.until(lambda: self.figure("buried") == len(jobs))
        for job in jobs:
            self.assertIn("not a message of Celery", self.queue.stats_job(job)["last-error"])
        note.delay("next")
        self.until(lambda: "next" in self.lines())

    def test_a_long_task_runs_once(self):
        self.worker()
        sleep.delay("long", 9)
        self.until(lambda: self.lines() == ["long starts", "long ends"])
        self.until(self.is_empty)
        self.assertEqual(self.queue.stats()["job-timeouts"], 0)

    def test_the_task_of_a_killed_worker_runs_again(self):
        worker = self.worker()
        sleep.delay("task", 2)
        self.until(lambda: self.lines() == ["task starts"])
        self.kill(worker)
        self.worker()
        self.until(lambda: self.lines() == ["task starts", "task starts", "task ends"])
        self.until(self.is_empty)


if __name__ == "__main__":
    unittest.main()
