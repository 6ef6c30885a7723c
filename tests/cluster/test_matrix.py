"""Tests the clients' checks, the simulated machines and the tables of the tests of failures, without etcd and beanpole."""

import importlib.machinery
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import load as clients
import machines
import outages
import rows
import summary
import world
from load import Book, Load

loader = importlib.machinery.SourceFileLoader("run", os.path.join(HERE, "run"))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(run)


class FakeClient:
    """A connection with prepared replies."""

    def __init__(self, replies=(), door="beanstalk", name="a", epoch=None, asked=0.0):
        self.replies, self.door, self.epoch, self.asked = list(replies), door, epoch, asked
        self.node, self.link = types.SimpleNamespace(name=name), object()

    def ask(self, _):
        return self.replies.pop(0)

    def drop(self):
        pass

    def line(self):
        return self.replies.pop(0)

    def body(self, _):
        return self.replies.pop(0)


def idle_load():
    """Returns a load without threads."""
    made = Load.__new__(Load)
    made.book, made.stop, made.world = Book(), False, None
    return made


class Checks(unittest.TestCase):
    def test_a_reply_of_a_previous_epoch_is_found(self):
        book, now = Book(), time.monotonic()
        book.answered(FakeClient(epoch=1, asked=now))
        book.answered(FakeClient(name="b", epoch=2, asked=now))
        # The request may have been sent before the other server became active.
        book.answered(FakeClient(epoch=1, asked=now))
        self.assertEqual(book.problems, [])
        time.sleep(0.001)
        book.answered(FakeClient(epoch=1, asked=time.monotonic()))
        self.assertEqual(book.problems, ["a answers in epoch 1, but epoch 2 has begun"])
        self.assertEqual(book.answers[:3], [now] * 3)

    def test_every_difference_from_the_book_is_found(self):
        book = Book()
        book.sent = {b"kept", b"lost", b"deleted", b"back", b"ambiguous", b"twice", b"unanswered"}
        book.put, book.deleted, book.unsure = book.sent - {b"unanswered"}, {b"deleted", b"back"}, {b"ambiguous"}
        self.assertEqual(book.compare([b"kept", b"lost", b"twice"])[2], [])
        lost, back, problems = book.compare([b"kept", b"back", b"twice", b"twice", b"other"])
        self.assertEqual((lost, back), (1, 1))
        self.assertEqual(problems, ["1 jobs lost: [b'lost']", "1 jobs reappeared: [b'back']",
                                    "1 jobs exist twice: [b'twice']", "1 jobs were not put: [b'other']"])

    def test_an_id_with_two_jobs_is_found(self):
        book, client = Book(), FakeClient()
        book.sent = {b"x", b"y"}
        book.acknowledged(b"x", client, "7")
        book.taken(b"x", client, "7")
        self.assertEqual(book.problems, [])
        book.acknowledged(b"y", client, "7")
        book.taken(b"y", client, "7")
        self.assertEqual(book.problems, ["job 7 is both b'x' and b'y'"] * 2)

    def test_a_completed_or_unknown_job_is_found_when_it_is_received(self):
        book, client = Book(), FakeClient()
        book.sent, book.deleted = {b"x"}, {b"x"}
        book.taken(b"x", client)
        book.taken(b"y", client)
        self.assertEqual(book.problems, ["b'x' was received again after its completion was acknowledged",
                                         "b'y' was received but not put"])

    def test_a_refused_delete_is_not_treated_as_a_lost_reply(self):
        made = idle_load()
        made.book.sent = {b"x"}
        made.reserve(FakeClient(["RESERVED 1 1", b"x", "DELETED"]), b"w-1")
        self.assertEqual(made.book.deleted, {b"x"})
        made.book.deleted.clear()
        with self.assertRaises(ValueError):
            made.reserve(FakeClient(["RESERVED 1 1", b"x", "NOT_FOUND"]), b"w-1")

    def test_refused_requests_are_counted(self):
        full = "-SERVER-ERROR Out of memory"
        for step, replies in (("put", ["OUT_OF_MEMORY"]), ("reserve", ["RESERVED 1 1", b"x", "OUT_OF_MEMORY"]),
                              ("add", [full]), ("lease", ["+OK 1", "id workq 2000 1", b"x", full])):
            made = idle_load()
            made.book.sent = {b"x"}
            getattr(made, step)(FakeClient(replies), b"x-7")
            self.assertEqual((made.book.refused, made.book.problems), (1, []), step)

    def test_unknown_replies_are_problems(self):
        for step, reply in (("put", "INTERNAL_ERROR"), ("reserve", "INTERNAL_ERROR"), ("lease", "-SERVER-ERROR"),
                            ("add", "-SERVER-ERROR")):
            with self.assertRaises(ValueError):
                getattr(idle_load(), step)(FakeClient([reply]), b"x-1")

    def test_a_malformed_reply_is_not_treated_as_a_closed_connection(self):
        made = idle_load()
        made.world = types.SimpleNamespace(is_closed=False, nodes=[])
        made.prefix, made.reserve = "p", lambda client, name: [][0]
        real, clients.Client = clients.Client, lambda world, door: FakeClient()
        try:
            thread = threading.Thread(target=made.run, args=("beanstalk", made.reserve, "reserve0"), daemon=True)
            thread.start()
            thread.join(20)
        finally:
            clients.Client = real
        self.assertEqual(len(made.book.problems), 1)

    def test_clients_without_progress_are_found(self):
        made, real = idle_load(), clients.RECOVERY
        clients.RECOVERY = 0.1
        try:
            made.recover()
        finally:
            clients.RECOVERY = real
        self.assertIn("do not make progress", made.book.problems[0])


class Machines(unittest.TestCase):
    def test_processes_receive_different_ports_that_are_not_ephemeral(self):
        code = "import time, world; print(*[world.free_port() for _ in range(200)], flush=True); input()"
        processes = [subprocess.Popen([sys.executable, "-Bc", code], cwd=HERE, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True) for _ in range(3)]
        try:
            ports = [int(port) for process in processes for port in process.stdout.readline().split()]
        finally:
            for process in processes:
                process.communicate("\n")
        self.assertEqual((len(ports), len(set(ports))), (600, 600))
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            lowest, highest = map(int, file.read().split())
        self.assertFalse([port for port in ports if lowest <= port <= highest])

    def test_connections_share_the_bandwidth(self):
        wire = world.Wire()
        self.assertEqual(wire.wait(1000) <= 0, True)
        wire.slowness = 0.1
        wire.wait(1000)
        before = wire.free
        wire.wait(1000)
        self.assertAlmostEqual(wire.free - before, 100)

    @unittest.skipUnless(shutil.which("cc"), "a C compiler is missing")
    def test_the_shim_sets_clocks_and_makes_operations_fail(self):
        code = """import errno, os, sys, time
def attempt(run):
    try:
        run()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]
file = os.open("old", os.O_RDWR)
print(round((time.time() - float(sys.argv[1])) / 100), attempt(lambda: os.open("new", os.O_CREAT | os.O_RDWR)),
      attempt(lambda: os.pwrite(file, b"x", 0)), attempt(lambda: os.pwrite(file, b"x", 10)),
      attempt(lambda: os.unlink("old")))"""
        expected = [((3600, 0, 5, 0), "36 ok ok ok ok"), ((0, 0, 5, world.CREATE), "0 EIO ok ok ok"),
                    ((0, 0, 5, world.WRITE), "0 ok EIO EIO ok"), ((0, 0, 5, world.REMOVE), "0 ok ok ok EIO"),
                    ((0, 0, 28, world.WRITE), "0 ok ok ENOSPC ok")]
        with tempfile.TemporaryDirectory() as folder:
            made = types.SimpleNamespace(folder=folder)
            library = world.World.compile_shim(made)
            for numbers, output in expected:
                with open(os.path.join(folder, "old"), "wb") as file:
                    file.write(b"1234567890")
                with open(os.path.join(folder, "numbers"), "wb") as file:
                    file.write(struct.pack("4q", *numbers))
                environment = dict(os.environ, LD_PRELOAD=library, SHIM=os.path.join(folder, "numbers"))
                program = os.path.realpath(sys.executable)
                done = subprocess.run([program, "-Bc", code, str(time.time())], cwd=folder, env=environment,
                                      capture_output=True, text=True)
                self.assertEqual(done.stdout.strip(), output, done.stderr)


class Tables(unittest.TestCase):
    def made(self):
        made = summary.Summary()
        for stall, is_well in ((1.0, True), (1.4, True), (2.0, False)):
            made.add(1, is_well, 9, "SIGKILL", stall)
        made.add("lost", True, 9)
        return made

    def test_the_table_has_the_median_and_the_worst_stall(self):
        lines = [line.split() for line in self.made().table().splitlines()]
        self.assertEqual(lines[1:], [["1", "2", "1", "1.40", "s", "2.00", "s", "SIGKILL"], ["lost", "1", "0"]])

    def test_the_lines_of_the_manual_are_printed(self):
        lines = summary.manual(self.made()).splitlines()
        self.assertEqual(lines[0], ".It active server killed Ta 1.4 s Ta 2.0 s")
        self.assertEqual(lines[1], ".It active server suspended for 5 s Ta not measured Ta not measured")

    def test_the_manual_lists_the_measured_failures(self):
        self.assertEqual(summary.manual_words(), list(summary.MANUAL))
        self.assertFalse(set(map(int, summary.MANUAL.values())) - set(rows.ROWS))

    def test_each_row_has_its_own_number(self):
        numbers = [name for module in (rows, outages, machines) for name in dir(module) if name.startswith("row_")]
        self.assertEqual(len(numbers), len(set(numbers)))
        self.assertEqual(sorted(rows.ROWS), sorted(int(name.split("_")[1]) for name in numbers))
        chosen = run.chosen(types.SimpleNamespace(rows="all", strict_times=False))
        self.assertEqual([int(row) for row in chosen if row.isdigit()], sorted([*rows.ROWS, 11]))
        self.assertNotIn("tls", chosen)
        self.assertEqual(run.chosen(types.SimpleNamespace(rows="1,16,lost", strict_times=False)), ["1", "lost"])

    def test_lanes_collect_the_results_of_all_rows(self):
        # Each row waits until all rows have started.
        code = """import json, os, sys, time
row, path = sys.argv[2], sys.argv[4]
result = {"row": row, "title": "", "ok": row != "bad", "stall": 1.0, "seconds": 0, "note": ""}
with open(path, "w") as file:
    file.write((json.dumps(result) + "\\n") * (row != "crash"))
end = time.time() + 30
while len([name for name in os.listdir(os.path.dirname(path)) if not name.endswith(".log")]) < 3:
    if time.time() > end: sys.exit(9)
    time.sleep(0.01)
time.sleep(0.1)
sys.exit(row != "good")"""
        made = summary.Summary()
        summary.run_lanes([sys.executable, "-Bc", code], ["good", "bad", "crash"], 3, 1, made)
        results = {result["row"]: (result["ok"], result["note"]) for result in made.results}
        self.assertEqual(results, {"good": (True, ""), "bad": (False, ""), "crash": (False, "exit status 1")})

    def test_a_row_can_return_a_measured_time(self):
        for result, expected in ((True, (True, [])), ((False, 2.5), (False, [2.5]))):
            stalls = []
            self.assertEqual((run.split(result, stalls), stalls), expected)

    def test_a_summary_can_be_read_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "summary")
            summary.Summary(path).add(1, True, 1, "title", 0.5)
            self.assertEqual(summary.read([path, path]).table().split("\n")[1].split()[:3], ["1", "2", "0"])


if __name__ == "__main__":
    unittest.main()
