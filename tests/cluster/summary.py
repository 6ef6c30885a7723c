"""Records the result of each round, distributes rows over parallel processes, and prints tables."""

import concurrent.futures
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MAN = os.path.join(os.path.dirname(__file__), "..", "..", "man", "beanpole-cluster.7")

# The rows whose stalls the manual lists, with the manual's words.
MANUAL = {"active server killed": "1", "active server suspended for 5 s": "4", "machine of the active server cut off": "6",
          "active server cut off from etcd": "7", "leader of etcd killed": "3",
          "active server and leader of etcd killed": "2", "a standby or an etcd follower killed": "21",
          "active server shut down, or another promoted": "22"}

# The time limit of one round in seconds.
LIMIT = 900


class Summary:
    """The results of all rounds. Each line of the file is a JSON object with the row, its title, whether the round
    passed, its duration, the longest stall in seconds or null, and a note."""

    def __init__(self, path=None):
        self.path, self.results = path, []
        if path:
            open(path, "w").close()

    def add(self, row, is_well, seconds, title="", stall=None, note=""):
        self.put({"row": str(row), "title": title, "ok": bool(is_well), "seconds": round(seconds, 2),
                  "stall": None if stall is None else round(stall, 3), "note": note})

    def put(self, result):
        self.results.append(result)
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(result) + "\n")

    def failures(self):
        return sum(not result["ok"] for result in self.results)

    def table(self):
        """Returns a line for each row: the rounds that passed and failed, the median and the worst stall, and the title."""
        rows = {}
        for result in self.results:
            rows.setdefault(result["row"], []).append(result)
        lines = [f"{'row':10} {'passed':>6} {'failed':>6} {'median':>7} {'worst':>7}  fault"]
        for row, results in rows.items():
            stalls = [result["stall"] for result in results if result["stall"] is not None]
            median, worst = (f"{statistics.median(stalls):.2f} s", f"{max(stalls):.2f} s") if stalls else ("", "")
            passed = sum(result["ok"] for result in results)
            titles = [result["title"] for result in results if result["title"]]
            lines.append(f"{row:10} {passed:6} {len(results) - passed:6} {median:>7} {worst:>7}  {titles[0] if titles else ''}"
                         .rstrip())
        return "\n".join(lines)


def read(paths):
    """Reads the files of one or several runs."""
    summary = Summary()
    for path in paths:
        with open(path) as file:
            for line in file:
                summary.put(json.loads(line))
    return summary


def manual(summary):
    """Returns the lines of the manual's table of stalls."""
    lines = []
    for words, row in MANUAL.items():
        stalls = [result["stall"] for result in summary.results if result["row"] == row and result["stall"] is not None]
        figures = (f"{statistics.median(stalls):.1f} s", f"{max(stalls):.1f} s") if stalls else ("not measured",) * 2
        lines.append(f".It {words} Ta {figures[0]} Ta {figures[1]}")
    return "\n".join(lines)


def manual_words():
    """Returns the first column of the manual's table of stalls."""
    with open(MAN) as file:
        return re.findall(r"^\.It (.+?) Ta [\d.]+ s Ta [\d.]+ s$", file.read(), re.M)


def run_lanes(command, rows, lanes, rounds, summary):
    """Runs `command --rows ROW --summary FILE` for each row in up to `lanes` processes at the same time. Prints the
    output of a row when it is complete."""
    running, is_over = set(), False

    def one(row, folder):
        path, begin = os.path.join(folder, row), time.time()
        if is_over:
            return row, path, begin, None, ""
        with open(path + ".log", "w") as log:
            process = subprocess.Popen([*command, "--rows", row, "--summary", path], stdout=log, stderr=log)
        running.add(process)
        try:
            process.wait(LIMIT * rounds)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        running.discard(process)
        with open(path + ".log") as log:
            return row, path, begin, process.returncode, log.read()

    with tempfile.TemporaryDirectory(prefix="beanpole-lanes-") as folder, \
            concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        try:
            for future in concurrent.futures.as_completed([pool.submit(one, row, folder) for row in rows]):
                row, path, begin, status, text = future.result()
                print(text, end="", flush=True)
                part = read([path] if os.path.exists(path) else [])
                for result in part.results:
                    summary.put(result)
                if status != 0 and not part.failures():
                    summary.add(row, False, time.time() - begin, note=f"exit status {status}")
        except BaseException:
            is_over = True
            for process in list(running):
                process.send_signal(signal.SIGTERM)
            raise


def lane_command(options):
    """Returns the command that runs rows of this run in one lane."""
    words = [sys.executable, "-B", sys.argv[0], options.program, "--rounds", str(options.rounds), "--etcd", options.etcd]
    return words + ["--lanes", "0"] + ["--long"] * options.long + ["--strict-times"] * options.strict_times
