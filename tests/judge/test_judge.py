#!/usr/bin/env python3
"""Tests the judge with handwritten histories, which are correct or contain one violation each, and its disk and its
pair of servers.

A line of a history is `connection sent done command => reply`. A body in quotes follows its command or reply. If `done`
is `-`, there is no reply. A line that starts with `--` has the form `-- time kind how-or-connection`.
"""

import os
import random
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

from disk import Disk, File  # noqa: E402
from history import NEVER, Mark, Op, excerpt  # noqa: E402
from server import Server  # noqa: E402
from verdict import judge  # noqa: E402


def read(text):
    history = []
    for row in text.strip().split("\n"):
        row = row.strip()
        if row.startswith("--"):
            _, time, kind, *rest = row.split(" ")
            word = rest[0] if rest else ""
            conn, how = (word, "") if kind == "close" else ("", word)
            history.append(Mark(kind, float(time), conn=conn, how=how))
            continue
        ask, _, answer = row.partition(" => ")
        conn, sent, done, line = ask.split(" ", 3)
        line, _, body = line.partition(' "')
        reply, _, data = answer.partition(' "')
        data = data.rstrip('"').replace(";", "\n").encode()
        end = NEVER if done == "-" else float(done)
        body = body.rstrip('"').encode() if line.startswith("put") else None
        history.append(Op(conn, float(sent), line, body, end, reply, data, quiet="current-jobs" in answer))
    return history


def rules(text, window=0.0):
    return [violation.rule for violation in judge(read(text), window)]


PUT = 'p 0.0 0.1 put 5 0 2 1 "a" => INSERTED 1\n'
TAKEN = PUT + 'w 0.2 0.3 reserve-with-timeout 0 => RESERVED 1 1 "a"\n'
TWO = PUT + 'p 0.1 0.2 put 5 0 2 1 "b" => INSERTED 2\n'
KILLED = "-- 1.0 down kill\n-- 1.5 up\n"
CUT = "-- 1.0 down power\n-- 1.5 up\n"
GONE = "w 2.0 2.1 peek 1 => NOT_FOUND"

VIOLATIONS = [
    ("id reused", PUT + 'p 0.2 0.3 put 5 0 2 1 "b" => INSERTED 1'),
    ("id reused", PUT + "p 0.2 0.3 delete 1 => DELETED\n" + KILLED + 'q 2.0 2.1 put 5 0 2 1 "b" => INSERTED 1'),
    ("body changed", PUT + 'w 0.2 0.3 reserve => RESERVED 1 1 "b"'),
    ("body changed", PUT + 'w 0.2 0.3 peek 1 => FOUND 1 0 ""'),
    ("invented job", 'w 0.2 0.3 reserve => RESERVED 1 1 "b"'),
    ("invented job", 'p 0.0 0.1 put 5 0 2 1 "b" => OUT_OF_MEMORY\nw 0.2 0.3 reserve => RESERVED 1 1 "b"'),
    ("job lost", PUT + "w 0.2 0.3 peek 1 => NOT_FOUND"),
    ("job lost", PUT + "w 0.2 0.3 delete 1 => NOT_FOUND"),
    ("job lost", PUT + KILLED + GONE),
    ("job lost", TAKEN + KILLED + GONE),
    ("job lost", PUT + CUT + GONE),
    ("deleted job is back", PUT + "p 0.2 0.3 delete 1 => DELETED\nw 0.4 0.5 reserve => RESERVED 1 1 \"a\""),
    ("deleted job is back", TAKEN + "w 0.4 0.5 delete 1 => DELETED\n" + KILLED + 'x 2.0 2.1 peek 1 => FOUND 1 1 "a"'),
    ("reserved twice", TAKEN + 'x 0.4 0.5 reserve-with-timeout 0 => RESERVED 1 1 "a"'),
    ("reserved twice", TAKEN + 'w 1.9 2.0 touch 1 => TOUCHED\nx 3.0 3.1 reserve-with-timeout 0 => RESERVED 1 1 "a"'),
    ("time limit too short", TAKEN + "w 0.4 0.5 touch 1 => NOT_FOUND"),
    ("time limit too short", TAKEN + "x 0.4 0.5 stats-job 1 => OK 9 \"state: ready;\""),
    ("time limit lost", TAKEN + "x 9.0 9.1 stats-job 1 => OK 9 \"state: reserved;\""),
    ("time limit lost", TAKEN + "w 9.0 9.1 release 1 5 0 => RELEASED"),
    ("time limit lost", TAKEN + "w 1.0 1.1 touch 1 => TOUCHED\nx 9.0 9.1 stats-job 1 => OK 9 \"state: reserved;\""),
    ("time limit lost", TAKEN + "x 9.0 9.1 delete 1 => NOT_FOUND"),
    ("not served", TAKEN + "x 9.0 9.1 reserve-with-timeout 0 => TIMED_OUT"),
    ("not served", PUT + "w 0.2 0.3 reserve-with-timeout 0 => TIMED_OUT"),
    ("not served", PUT + KILLED + "w 2.0 2.1 reserve-with-timeout 0 => TIMED_OUT"),
    ("not served", TAKEN + "w 0.4 0.5 release 1 5 0 => RELEASED\nx 0.6 0.7 reserve-with-timeout 0 => TIMED_OUT"),
    ("delay too short", 'p 0.0 0.1 put 5 3 2 1 "a" => INSERTED 1\nw 0.2 0.3 reserve => RESERVED 1 1 "a"'),
    ("delay too long", 'p 0.0 0.1 put 5 3 2 1 "a" => INSERTED 1\nw 9.2 9.3 stats-job 1 => OK 9 "state: delayed;"'),
    ("delay too short", TAKEN + 'w 0.4 0.5 release 1 5 3 => RELEASED\nx 0.6 0.7 reserve => RESERVED 1 1 "a"'),
    ("order", TWO + 'w 0.3 0.4 reserve => RESERVED 2 1 "b"'),
    ("order", PUT + 'p 0.1 0.2 put 0 0 2 1 "b" => INSERTED 2\nw 0.3 0.4 reserve => RESERVED 1 1 "a"'),
    ("order", TAKEN + 'p 0.3 0.4 put 3 0 2 1 "b" => INSERTED 2\nw 0.5 0.6 release 1 0 0 => RELEASED\n' + KILLED
     + 'x 2.0 2.1 reserve => RESERVED 2 1 "b"'),
    ("buried job served", TAKEN + 'w 0.4 0.5 bury 1 5 => BURIED\nx 0.6 0.7 reserve => RESERVED 1 1 "a"'),
    ("state wrong", TAKEN + 'w 0.4 0.5 bury 1 5 => BURIED\n' + KILLED
     + 'x 2.0 2.1 stats-job 1 => OK 9 "state: ready;"'),
    ("server ended", PUT + "-- 0.3 died status"),
    ("deleted by a stranger", TAKEN + "x 0.4 0.5 delete 1 => DELETED"),
    ("count of jobs", PUT + 'x 0.2 0.3 stats => OK 9 "current-jobs-ready: 2;"'),
    ("count of jobs", PUT + 'x 0.2 0.3 stats-tube default => OK 9 "current-jobs-ready: 0;"'),
    ("counter cmd-delete", PUT + 'x 0.2 0.3 stats => OK 9 "current-jobs-ready: 1;cmd-delete: 0;"\n'
     'x 0.4 0.5 delete 7 => NOT_FOUND\nx 0.6 0.7 stats => OK 9 "current-jobs-ready: 1;cmd-delete: 0;"'),
    ("counter total-jobs", 'x 0.0 0.1 stats => OK 9 "total-jobs: 0;current-jobs-ready: 0;"\n'
     'x 0.2 0.3 put 5 0 2 1 "a" => INSERTED 1\nx 0.4 0.5 stats => OK 9 "total-jobs: 2;current-jobs-ready: 1;"'),
]

CORRECT = [
    # A put that is incomplete or has no reply yet has the same body as the reserved job.
    'p 0.0 - put 5 0 2 9 ""\nq 0.2 0.6 put 5 0 2 0 "" => INSERTED 1\nw 0.3 0.4 reserve => RESERVED 1 0 ""',
    TAKEN + "w 0.4 0.5 delete 1 => DELETED\nw 0.6 0.7 peek 1 => NOT_FOUND",
    # A waiting worker may receive the job before the producer receives the reply.
    'w 0.0 0.4 reserve => RESERVED 1 1 "a"\np 0.3 0.5 put 5 0 2 1 "a" => INSERTED 1\n'
    'x 0.6 0.7 stats-job 1 => OK 9 "state: reserved;"',
    # The next worker may receive its reply before the worker that released the job receives RELEASED.
    TAKEN + 'x 0.3 0.5 reserve => RESERVED 1 1 "a"\nw 0.4 0.6 release 1 5 0 => RELEASED\n'
    'w 0.7 0.8 touch 1 => NOT_FOUND',
    # A command without a reply may have been executed.
    'p 0.0 - put 5 0 2 1 "a"\n-- 0.1 close p\nw 0.2 0.3 reserve => RESERVED 1 1 "a"',
    TAKEN + "w 0.4 - delete 1\n" + KILLED + GONE,
    TAKEN + "w 0.4 - delete 1\n" + KILLED + 'x 2.0 2.1 peek 1 => FOUND 1 1 "a"',
    TAKEN + 'w 0.4 - release 1 5 0\nx 0.5 0.6 reserve => RESERVED 1 1 "a"\n-- 0.7 close w',
    PUT + "w 0.2 - reserve\nx 0.3 0.4 reserve-with-timeout 0 => TIMED_OUT\n-- 0.5 close w",
    PUT + 'x 0.2 0.3 delete 1 => INTERNAL_ERROR\nx 0.4 0.5 stats => OK 9 "current-jobs-ready: 0;"',
    # A reservation ends when the connection closes, the time to run expires, or the server stops.
    TAKEN + '-- 0.5 close w\nx 0.6 0.7 reserve => RESERVED 1 1 "a"',
    TAKEN + 'x 2.2 2.4 reserve => RESERVED 1 1 "a"\nw 2.5 2.6 release 1 5 0 => NOT_FOUND',
    TAKEN + KILLED + 'x 2.0 2.1 reserve => RESERVED 1 1 "a"',
    # Two puts are in progress while a job is reserved. A kick is in progress while a job is buried and reserved.
    TWO + 'w 0.15 0.4 reserve => RESERVED 1 1 "a"',
    TAKEN + 'w 0.4 0.5 bury 1 5 => BURIED\nk 0.45 0.7 kick 1 => KICKED 1\nx 0.6 0.65 reserve => RESERVED 1 1 "a"',
    # A delay within the tolerance is not a violation.
    TAKEN + "x 3.0 3.1 stats-job 1 => OK 9 \"state: reserved;\"",
]

# With a promise of 50 ms, a power failure can undo only the most recent commands.
RECENT = 'p 0.0 0.9 put 5 0 2 1 "a" => INSERTED 1\n'
ALLOWED = [RECENT + CUT + GONE, RECENT + CUT + 'w 2.0 2.1 reserve => RESERVED 1 1 "a"',
           'p 0.0 0.1 put 5 0 9 1 "a" => INSERTED 1\np 0.2 0.9 delete 1 => DELETED\n' + CUT
           + 'w 2.0 2.1 peek 1 => FOUND 1 1 "a"']


class Verdicts(unittest.TestCase):
    def test_each_history_violates_only_its_rule(self):
        for rule, text in VIOLATIONS:
            self.assertEqual(rules(text), [rule], text)

    def test_correct_histories_pass(self):
        for text in CORRECT + ALLOWED:
            self.assertEqual(rules(text, 0.05), [], text)

    def test_a_power_failure_may_undo_only_recent_changes(self):
        self.assertEqual(rules(RECENT + CUT + GONE), ["job lost"])
        self.assertEqual(rules(PUT + "-- 3.0 down power\n-- 3.5 up\n" + GONE.replace("2.", "4."), 0.05), ["job lost"])
        self.assertEqual(rules(PUT + CUT + GONE, NEVER), [])
        self.assertEqual(rules(PUT + KILLED + GONE, NEVER), ["job lost"])
        # The job is ready because of a kick that has no reply.
        kicked = TAKEN + "w 0.3 0.4 bury 1 5 => BURIED\nm 0.5 - kick 1\n"
        kicked += 'w 0.6 0.9 reserve-with-timeout 1 => RESERVED 1 1 "a"\n'
        self.assertEqual(rules(kicked + CUT + 'x 5.0 5.1 stats-job 1 => OK 9 "state: buried;"'), [])

    def test_an_excerpt_shows_only_the_job(self):
        other = "".join(f'q 0.{n} 0.{n} put 5 0 2 1 "x" => INSERTED {n + 10}\n' for n in range(3, 9))
        history = read(TAKEN + other + "x 9.0 9.1 stats-job 1 => OK 9 \"state: reserved;\"")
        rows = excerpt(history, judge(history)[0])
        self.assertEqual([row.split()[2] for row in rows], ["p", "w", "x"])


class Cuts(unittest.TestCase):
    def left(self, steps, seed):
        with tempfile.TemporaryDirectory() as directory:
            disk = Disk(directory)
            for step in steps:
                disk.step(*step)
            disk.cut(random.Random(seed))
            return {name: bytes(file.durable) for name, file in disk.durable.items()}

    def test_synced_data_survives_and_later_data_may_survive(self):
        synced = [("O", "log", 0, 0, b""), ("W", "log", 0, 0, b"one"), ("s", "log", 1, 0, b"")]
        synced.append(("W", "log", 3, 0, b"two"))
        after = [("S", "log", 1, 0, b""), ("U", "old", 0, 0, b""), ("R", "log", 0, 0, b"new")]
        found = {str(self.left(synced + after, seed)) for seed in range(50)}
        self.assertEqual(found, {str({name: data}) for name in ("log", "new") for data in (b"one", b"onetwo")})

    def test_unsynced_data_may_be_lost(self):
        steps = [("O", "log", 0, 0, b""), ("W", "log", 0, 0, b"one")]
        found = {str(self.left(steps, seed)) for seed in range(50)}
        self.assertEqual(found, {str({}), str({"log": b""}), str({"log": b"one"})})

    def test_a_file_can_shrink_and_have_holes(self):
        file = File(b"abcdef")
        file.pending = [("T", 2, b""), ("W", 4, b"x"), ("A", 7, b"")]
        file.keep(3)
        self.assertEqual(bytes(file.durable), b"ab\0\0x\0\0")


# A server that serves only while it holds a file lock, like a cluster member that serves only while it has a lease.
MEMBER = """import fcntl, socket, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
time.sleep(600)
"""


class PairTest(unittest.TestCase):
    def wait_for_standby(self, server):
        """Waits until the kernel lists the other member as a waiter for the lock."""
        other = next(member for member in server.members if member is not server.active)
        for _ in range(3000):
            with open("/proc/locks") as locks:
                if any(" -> " in line and f" {other.process.pid} " in line for line in locks):
                    return
            time.sleep(0.01)
        self.fail("the other member did not wait for the lock")

    def test_the_other_member_takes_over_and_the_first_starts_again(self):
        with tempfile.TemporaryDirectory() as directory:
            script = os.path.join(directory, "member.py")
            with open(script, "w") as file:
                file.write(MEMBER)
            server = Server(f"{sys.executable} {script} {directory}/lock {{port}} {{node}}", directory, None, "round")
            self.addCleanup(server.end_all)
            server.start()
            served = []
            for how in ("kill", "stop"):
                self.wait_for_standby(server)
                served.append(server.active.node)
                server.end(how)
                server.start()
                self.assertTrue(all(member.runs() for member in server.members))
            self.assertEqual(server.active.node, served[0])
            self.assertNotEqual(served[0], served[1])


if __name__ == "__main__":
    unittest.main()
