"""Runs the relay with real servers and crashes the relay at every point between its first put and its commit."""
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
INITDB = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))


def start_queue(directory, port="0"):
    program = os.environ.get("BEANPOLE", "beanpole")
    options = ["-p", port, "-b", directory, "-f0", "--ready-fd", "1", "--exit-with-parent"]
    server = subprocess.Popen([program, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return server, server.stdout.readline().split()[0]


@unittest.skipUnless(INITDB, "PostgreSQL is not installed")
class RelayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp()
        os.chmod(cls.directory, 0o755)
        data, bin = cls.directory + "/data", os.path.dirname(INITDB[-1])
        os.mkdir(data)
        # PostgreSQL refuses to run as root.
        user = "postgres" if os.getuid() == 0 else None
        if user:
            shutil.chown(data, user)
        as_user = {"user": user, "cwd": "/", "check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([bin + "/initdb", "-D", data, "-A", "trust", "-U", "postgres"], **as_user)
        options = f"-c listen_addresses= -c unix_socket_directories={data} -c fsync=off"
        subprocess.run([bin + "/pg_ctl", "-D", data, "-o", options, "-w", "start"], **as_user)
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.addClassCleanup(subprocess.run, [bin + "/pg_ctl", "-D", data, "-m", "immediate", "stop"], **as_user)
        cls.source = f"host={data} user=postgres dbname=postgres"
        cls.queue, os.environ["BEANPOLE_SERVER"] = start_queue(cls.directory + "/jobs")
        sys.path.insert(0, HERE)
        global relay
        import relay
        cls.database = psycopg2.connect(cls.source)
        with cls.database, cls.database.cursor() as cursor:
            cursor.execute(pathlib.Path(HERE, "schema.sql").read_text())

    @classmethod
    def tearDownClass(cls):
        cls.database.close()
        cls.queue.kill()
        cls.queue.wait()
        cls.queue.stdout.close()

    def insert(self, bodies):
        with self.database, self.database.cursor() as cursor:
            for body in bodies:
                cursor.execute("INSERT INTO outbox (tube, body) VALUES ('mail', %s)", [body])

    def crash(self, puts):
        """Runs the relay in a process that dies after `puts` puts, before the commit."""
        pid = os.fork()
        if pid == 0:
            class Crashing(relay.Client):
                def put_tagged(self, *arguments):
                    nonlocal puts
                    super().put_tagged(*arguments)
                    puts -= 1
                    if puts == 0:
                        os._exit(7)

            try:
                relay.relay(psycopg2.connect(self.source), Crashing())
            finally:
                os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)

    def relay_all(self):
        """Runs the relay until the table is empty. PostgreSQL needs some time to unlock the rows of a dead relay."""
        end = time.monotonic() + 300
        with relay.Client() as queue:
            while self.rows():
                self.assertLess(time.monotonic(), end)
                relay.relay(self.database, queue)

    def rows(self):
        with self.database, self.database.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM outbox")
            return cursor.fetchone()[0]

    def take_all(self):
        """Completes all jobs of the tube and returns their bodies."""
        bodies = []
        with relay.Client(watch="mail", encoding="utf-8") as queue:
            while queue.stats()["current-jobs-ready"]:
                job = queue.reserve(timeout=0)
                bodies.append(job.body)
                queue.delete(job)
        return bodies

    def test_a_job_is_committed_with_its_transaction(self):
        with self.assertRaises(ZeroDivisionError):
            with self.database, self.database.cursor() as cursor:
                cursor.execute("INSERT INTO outbox (tube, body) VALUES ('mail', 'never')")
                1 / 0
        self.insert(["committed"])
        self.relay_all()
        self.assertEqual(self.take_all(), ["committed"])

    def test_a_crash_neither_loses_nor_duplicates_a_job(self):
        for puts in (1, 2, 3):
            for worker_is_fast in (False, True):
                bodies = [f"{puts} {worker_is_fast} {number}" for number in range(3)]
                self.insert(bodies)
                self.crash(puts)
                done = self.take_all() if worker_is_fast else []
                self.relay_all()
                self.assertEqual(sorted(done + self.take_all()), bodies)

    def test_a_crash_of_both_loses_nothing_either(self):
        self.insert(["a", "b", "c"])
        self.crash(2)
        cls = type(self)
        cls.queue.kill()
        cls.queue.wait()
        cls.queue.stdout.close()
        port = os.environ["BEANPOLE_SERVER"].rsplit(":", 1)[1]
        cls.queue, address = start_queue(cls.directory + "/jobs", port)
        self.assertEqual(address, os.environ["BEANPOLE_SERVER"])
        self.relay_all()
        self.assertEqual(self.take_all(), ["a", "b", "c"])

    def test_the_program_waits_for_jobs(self):
        program = subprocess.Popen([sys.executable, os.path.join(HERE, "relay.py"), self.source])
        try:
            with relay.Client(watch="mail", encoding="utf-8") as queue:
                for body in ("first", "second"):
                    self.insert([body])
                    job = queue.reserve(timeout=300)
                    self.assertEqual(job.body, body)
                    queue.delete(job)
        finally:
            program.kill()
            program.wait()


if __name__ == "__main__":
    unittest.main()
