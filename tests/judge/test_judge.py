#!/usr/bin/env python3
"""Tests the judge with handwritten histories, which are correct or contain one violation each. Also tests its disk, its
shim, its choice of faults, the end of its runs, its tables and its pair of servers. Without a C compiler, the tests of
the shim are skipped.

A line of a history is `connection sent done command => reply`. A body in quotes follows its command or reply. If `done`
is `-`, there is no reply. A line that starts with `--` has the form `-- time kind how-or-connection`.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

from disk import Disk, File  # noqa: E402
from history import NEVER, Mark, Op, excerpt  # noqa: E402
from judge import FAULTS, choose  # noqa: E402
import tables  # noqa: E402
from server import PLACE, Server, build_shim  # noqa: E402
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

    def test_the_model_must_explain_names_and_contents(self):
        with tempfile.TemporaryDirectory() as directory:
            disk = Disk(directory)
            self.assertTrue(disk.matches())
            with open(os.path.join(directory, "log"), "w") as file:
                file.write("one")
            self.assertFalse(disk.matches())
            disk.step("O", "log", 0, 0, b"")
            self.assertFalse(disk.matches())
            disk.step("W", "log", 0, 0, b"one")
            self.assertTrue(disk.matches())
            self.assertEqual(disk.names["log"].durable, b"")


# Changes files with every function that the shim replaces and Python calls. With a full disk, all new space is refused.
WRITES = r"""import ctypes, errno, os, sys
os.chdir(sys.argv[1])
place = os.open(".", os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
if len(sys.argv) > 2:
    os.pwrite(os.open("a b", os.O_WRONLY), b"X", 0)
    for grows in (lambda: os.open("new", os.O_WRONLY | os.O_CREAT),
                  lambda: os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=place),
                  lambda: os.pwrite(os.open("a b", os.O_WRONLY), b"x", 99),
                  lambda: os.truncate(os.open("a b", os.O_WRONLY), 99),
                  lambda: os.posix_fallocate(os.open("a b", os.O_WRONLY), 0, 99)):
        try:
            grows()
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
        else:
            sys.exit("the disk is not full")
    name = b"new"
    assert libc.openat(place, name, os.O_WRONLY | os.O_CREAT, 0o600) == -1 and ctypes.get_errno() == errno.ENOSPC
    assert libc.open(name, os.O_WRONLY | os.O_CREAT, 0o600) == -1 and ctypes.get_errno() == errno.ENOSPC
    sys.exit()
log = os.open("a b", os.O_RDWR | os.O_CREAT)
os.write(log, b"one two")
os.writev(log, [b"three", b"\n", b"four"])
os.pwrite(log, b"ONE", 0)
os.pwritev(log, [b"T", b"W"], 4)
os.fsync(log)
os.ftruncate(log, 9)
os.posix_fallocate(log, 0, 20)
os.fdatasync(log)
os.mkdir("sub dir")
inner = os.open("sub dir", os.O_RDONLY)
for name in ("x\ny", "gone", "old name"):
    file = libc.openat(inner, name.encode(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, name.encode())
    os.write(file, b" again")
os.unlink("gone", dir_fd=inner)
os.rename("old name", "new name ", src_dir_fd=inner, dst_dir_fd=place)
os.close(os.open("./a b", os.O_WRONLY | os.O_CREAT))
os.write(os.open("cut", os.O_WRONLY | os.O_CREAT), b"long")
os.write(os.open("cut", os.O_WRONLY | os.O_TRUNC), b"s")
"""

# Stores its state in a way that the shim cannot see.
MAPS = """import mmap, os, signal, socket, sys
file = os.open(sys.argv[1] + "/log", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 4)
mmap.mmap(file, 4)[:] = b"jobs"
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
signal.pause()
"""


class Shims(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = os.path.realpath(scratch.name)

    def need_shim(self):
        shim = build_shim(self.scratch)
        if not shim:
            self.skipTest("a C compiler (cc) is missing")
        return shim

    def serve(self, text, shim):
        """Starts a server of a Python program with the given text."""
        script = os.path.join(self.scratch, "server.py")
        with open(script, "w") as file:
            file.write(text)
        server = Server(f"{sys.executable} {script} {{dir}} {{port}}", self.scratch, shim, "round", list(FAULTS))
        self.addCleanup(server.end_all)
        server.start()
        return server

    def files(self, server):
        return sorted(os.listdir(server.active.directory))

    def test_the_records_explain_the_directory(self):
        shim = self.need_shim()
        directory, trace, busy, flag = (os.path.join(self.scratch, name) for name in ("dir", "trace", "busy", "flag"))
        os.mkdir(directory)
        with open(busy, "wb") as file:
            file.write(bytes(8))
        environment = dict(os.environ, LD_PRELOAD=shim, JUDGE_DIR=directory, JUDGE_TRACE=trace, JUDGE_BUSY=busy,
                           JUDGE_FULL=flag)
        disk = Disk(directory)
        for arguments in ([], ["full"]):
            if arguments:
                open(flag, "w").close()
            open(trace, "w").close()
            run = subprocess.run([sys.executable, "-c", WRITES, directory, *arguments], env=environment,
                                 capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            disk.replay(trace)
            self.assertTrue(disk.matches(), disk.names)
        self.assertEqual(sorted(disk.names), ["a b", "cut", "new name ", "sub dir/x\ny"])
        self.assertEqual(disk.names["a b"].durable, b"ONE TWoth" + bytes(11))
        with open(busy, "rb") as file:
            self.assertEqual(file.read(), bytes(8))

    def test_syncs_of_a_slow_disk_take_longer(self):
        shim, flag = self.need_shim(), os.path.join(self.scratch, "slow")
        text = """import os, sys, time
file = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT)
begun = time.monotonic()
for _ in range(25):
    os.fsync(file)
    os.fdatasync(file)
print(time.monotonic() - begun)
"""
        environment = dict(os.environ, LD_PRELOAD=shim, JUDGE_DIR=self.scratch, JUDGE_SLOW=flag,
                           JUDGE_TRACE=os.path.join(self.scratch, "trace"))
        open(flag, "w").close()
        run = subprocess.run([sys.executable, "-c", text, self.scratch], env=environment, capture_output=True,
                             text=True)
        self.assertGreater(float(run.stdout), 0.45, run.stderr)

    def test_the_clock_is_set(self):
        shim, clock = self.need_shim(), os.path.join(self.scratch, "clock")
        with open(clock, "wb") as file:
            file.write((-86400).to_bytes(8, sys.byteorder, signed=True))
        run = subprocess.run([sys.executable, "-c", "import time; print(time.time())"], capture_output=True, text=True,
                             env=dict(os.environ, LD_PRELOAD=shim, JUDGE_CLOCK=clock))
        self.assertAlmostEqual(float(run.stdout), time.time() - 86400, delta=60)

    def test_unseen_writes_are_not_judged(self):
        server = self.serve(MAPS, self.need_shim())
        self.assertEqual(server.faults, list(FAULTS))
        self.assertEqual(server.end("power", random.Random(1)), "kill")
        self.assertEqual((server.faults, self.files(server)), (["kill", "stop"], ["log"]))

    def test_seen_writes_are_judged(self):
        text = MAPS.replace('mmap.mmap(file, 4)[:] = b"jobs"', 'os.write(file, b"jobs")')
        server = self.serve(text, self.need_shim())
        self.assertEqual(server.end("power", random.Random(1)), "power")
        self.assertEqual(server.faults, list(FAULTS))

    def test_a_change_without_a_record_is_not_an_unseen_write(self):
        server = self.serve(MAPS, self.need_shim())
        with open(server.active.busy, "r+b") as file:
            file.write(b"\1")
        self.assertEqual((server.end("kill"), server.faults), ("kill", list(FAULTS)))

    def test_a_server_without_the_shim_keeps_its_files(self):
        # The dynamic loader ignores a library that does not exist.
        server = self.serve(MAPS, os.path.join(self.scratch, "missing.so"))
        self.assertEqual(server.faults, ["kill", "stop"])
        self.assertEqual(server.end("power", random.Random(1)), "kill")
        self.assertEqual(self.files(server), ["log"])


class Choices(unittest.TestCase):
    def judge(self, *arguments, path):
        command = [sys.executable, os.path.join(PLACE, "judge.py"), "/bin/false {port} {dir}", "--rounds", "1"]
        run = subprocess.run([*command, *arguments], env=dict(os.environ, PATH=path), capture_output=True, text=True)
        return run.returncode, run.stdout + run.stderr

    def test_faults_without_their_requirements_are_dropped(self):
        self.assertEqual(choose(FAULTS, True, "shim"), list(FAULTS))
        self.assertEqual(choose(FAULTS, True, None), ["kill", "stop"])
        self.assertEqual(choose(FAULTS, False, "shim"), ["clock"])
        self.assertEqual(choose(FAULTS, False, None), [])

    def test_the_header_shows_the_faults(self):
        with tempfile.TemporaryDirectory() as empty:
            status, output = self.judge(path=empty)
            self.assertIn("\nfaults: kill, stop\ncannot test power, full, clock: a C compiler (cc) is missing", output)
            # The server exits immediately, which is a violation.
            self.assertEqual(status, 1, output)

    def test_a_fault_that_was_requested_must_be_tested(self):
        with tempfile.TemporaryDirectory() as empty:
            status, output = self.judge("--faults", "kill,power", path=empty)
            self.assertIn("cannot test power: ", output)
            self.assertEqual(status, 2, output)
            status, output = self.judge("--faults", "flood", path=empty)
            self.assertIn("unknown faults: flood", output)
            self.assertEqual(status, 2, output)

    def test_a_shim_that_does_not_compile_is_not_a_violation(self):
        with tempfile.TemporaryDirectory() as tools:
            os.symlink("/bin/false", os.path.join(tools, "cc"))
            status, output = self.judge(path=tools)
            self.assertIn("cannot compile shim.c", output)
            self.assertEqual(status, 2, output)


class Ends(unittest.TestCase):
    """The end of a run whose violations are expected. The server exits immediately, which is a violation."""

    def run_tool(self, *words):
        run = subprocess.run([os.path.join(PLACE, words[0]), *words[1:]], capture_output=True, text=True)
        return run.returncode, run.stdout + run.stderr

    def test_a_run_ends_when_all_awaited_rules_are_violated(self):
        for rules, rounds in (("server ended", 1), ("server ended,order", 3), ("", 3)):
            status, output = self.run_tool("judge.py", "/bin/false {port}", "--rounds", "3", "--until", rules)
            self.assertIn(f"\n{rounds} rounds, ", output)
            self.assertEqual(status, 1, output)

    def test_only_the_awaited_rules_satisfy_a_requirement(self):
        for rules, server, expected, words in (
                ("server ended", "/bin/false {port}", 0, "| server ended | 1 |"),
                ("order", "/bin/false {port}", 1, "does not report the rule 'order'"),
                ("server ended,order", "/bin/false {port}", 1, "does not report the rule 'order'"),
                ("", "/bin/false {port}", 2, "no rule is given")):
            status, output = self.run_tool("finds", rules, server, "--rounds", "1")
            self.assertIn(words, output)
            self.assertEqual(status, expected, output)

    def test_a_patch_without_a_rule_is_refused(self):
        """A fake cargo builds a program that violates another rule."""
        with tempfile.TemporaryDirectory() as folder:
            cargo = os.path.join(folder, "cargo")
            with open(cargo, "w") as file:
                file.write('#!/bin/sh\nmkdir -p "$CARGO_TARGET_DIR/release"\n'
                           'cp /bin/false "$CARGO_TARGET_DIR/release/beanpole"\n')
            os.chmod(cargo, 0o755)
            environment = dict(os.environ, CARGO=cargo, CARGO_TARGET_DIR=os.path.join(folder, "target"))
            patch = os.path.join(folder, "new.patch")
            for head, words in (("Rule: order\n", "does not report the rule 'order'"), ("", "no rule is given")):
                with open(patch, "w") as file:
                    file.write(f"A defect.\n{head}\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n")
                command = [os.path.join(PLACE, "plant"), patch]
                run = subprocess.run(command, env=environment, capture_output=True, text=True)
                self.assertIn(words, run.stderr)
                self.assertNotEqual(run.returncode, 0, run.stdout)


OUTPUT = """beanpole 0.2.0: /x/beanpole -l 127.0.0.1 -p {port}
seed 1; 2026-11-27; tolerances: 0.02 s early; a power cut may undo 0 s
faults: clock

8 rounds, 4711 commands, %d violations

| rule | violations | rounds | first |
|---|---|---|---|
%s"""


class Tables(unittest.TestCase):
    def page(self):
        with open(os.path.join(PLACE, "../../benches/JUDGE.md")) as file:
            return file.read()

    def shown(self, page):
        """Returns the server, the options and the seed of each row in the two tables of the page."""
        found = []
        for table in page.split(tables.HEADER)[1:]:
            rows = [line for line in table.split("\n\n")[0].split("\n") if line.startswith("| bean")]
            found.append([tuple(cell.strip() for cell in row.strip("|").split("|"))[:4] for row in rows])
        return [[(server, options, seed) for server, _, options, seed in rows] for rows in found]

    def test_one_command_reproduces_each_row_of_the_page(self):
        rows = [tables.selected(names) for names in ("short", "long")]
        kept = [[(row.server, row.title(), str(row.seed)) for row in table] for table in rows]
        self.assertEqual(self.shown(self.page()), kept)
        with self.assertRaisesRegex(SystemExit, "unknown rows: f1;"):
            tables.selected("f0,f1")

    def test_a_row_records_the_result_and_replaces_only_the_same_row(self):
        page = self.page()
        for name, rows, violations in (("memory", "", "none"), ("tls-long", "", "none"), (
                "f0", "| order | 3 | 2 of 8 | round 1: x |\n| job lost | 1 | 1 of 8 | round 1: y |\n",
                "order: 3, job lost: 1")):
            row = tables.selected(name)[0]
            line = tables.cells(row, OUTPUT % (rows.count("\n"), rows), "abc1234")
            date = time.strftime("%Y-%m-%d")
            wanted = ["beanpole", "0.2.0, commit abc1234", row.title(), str(row.seed), "8", "4711", date, violations]
            self.assertEqual(line, f"| {' | '.join(wanted)} |")
            changed = tables.replaced(page, row, line)
            gone = [old for old in page.split("\n") if old not in changed.split("\n")]
            self.assertEqual([len(gone), changed.count(line), len(changed.split("\n"))], [1, 1, len(page.split("\n"))])
            self.assertEqual(self.shown(changed), self.shown(page))
            without = page.replace(gone[0] + "\n", "")
            self.assertEqual(sorted(tables.replaced(without, row, gone[0])), sorted(page))

    def test_a_row_that_cannot_be_judged_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page")
            with open(path, "w") as file:
                file.write(self.page())
            command = [sys.executable, os.path.join(PLACE, "tables.py"), "--page", path, "--rows", "memory"]
            run = subprocess.run([*command, "--program", "/bin/false"], capture_output=True, text=True)
            self.assertIn("memory: not judged", run.stdout)
            self.assertEqual(run.returncode, 1, run.stderr)
            with open(path) as file:
                self.assertEqual(file.read(), self.page())
            run = subprocess.run([*command[:-1], "peer-f0,tls,pair"], capture_output=True, text=True)
            self.assertIn("these rows need --etcd, --peer, --tls-program", run.stderr)


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
