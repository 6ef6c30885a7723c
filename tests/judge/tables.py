#!/usr/bin/env python3
"""Judges all servers whose results benches/JUDGE.md shows, and replaces their rows in the page.

usage: tables.py [--program BEANPOLE] [--commit COMMIT] [--tls-program BEANPOLE] [--peer BEANSTALKD] [--etcd ETCD]
                 [--rows NAMES] [--seconds S] [--page PAGE] [--list]

NAMES are names of rows, separated by commas, or `short` or `long` for one of the two tables. The default is `short`.
--list prints the names and the commands of all rows, and judges nothing. --seconds limits the time for each row: no round begins
later. Each row of the page contains the seed, the version and the commit. A row is replaced as soon as it has been
judged. The exit status is 1 if beanpole broke a promise or a row could not be judged.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

PLACE = os.path.dirname(os.path.abspath(__file__))
HEADER = "| server | version | options | seed | rounds | commands | date | violations |"
SHORT, LONG = 300, 510


class Row:
    """A row of the page. `options` contains the options that the page shows, `how` explains them, and `command`
    contains the remaining options of the server. `words` are arguments of the judge. A row with a large number of
    rounds ends when its time is over, and is in the second table of the page."""

    def __init__(self, name, server, options, command="", words="", how="", seed=1, rounds=8, seconds=SHORT):
        self.name, self.server, self.options, self.command, self.words = name, server, options, command, words
        self.how, self.seed, self.rounds, self.seconds = how, seed, rounds, seconds
        self.is_long = rounds > 100

    def title(self):
        shown = self.options + (" --journal" if "{hosts}" in self.command else "")
        words = self.words if self.words != "--tls" else "over TLS"
        words = f", `{words}`" if words.startswith("--") else f", {words}" if words else ""
        return (f"`{shown}`" if shown else "memory") + words + self.how

    def judge(self, args, world):
        """Returns the arguments of the judge. `world` contains the certificate of the server and the hosts of etcd."""
        program = args.tls_program if "{key}" in self.command else args.program
        program = (args.peer if self.server == "beanstalkd" else program) or self.server
        words = [program, "-l {address} -p {port}", "-b {dir}" if self.options.startswith("-b") else "", self.command,
                 self.options.removeprefix("-b ")]
        command = " ".join(word for word in words if word)
        places = {"address": "tls:127.0.0.1" if "{key}" in self.command else "127.0.0.1", **world}
        for name, value in places.items():
            command = command.replace("{%s}" % name, value)
        return [command, "--seed", str(self.seed), "--rounds", str(self.rounds),
                "--seconds", str(args.seconds or self.seconds), *self.words.split()]

    def needs(self, args):
        """Returns the names of the missing programs."""
        needed = {"--peer": self.server == "beanstalkd", "--tls-program": "{key}" in self.command,
                  "--etcd": "{hosts}" in self.command}
        given = {"--peer": args.peer, "--tls-program": args.tls_program, "--etcd": args.etcd}
        return [name for name, is_needed in needed.items() if is_needed and not given[name]]


TLS = "--tls-cert {cert} --tls-key {key}"
JOURNAL = "--journal etcd://{hosts}/{round}"
PAIR = JOURNAL + " --node {node}"
SYNC = "--promise sync"
ALONE, TOGETHER = ", one server and three etcd servers", ", two servers and three etcd servers"

ROWS = [
    Row("peer-memory", "beanstalkd", ""),
    Row("peer-kill", "beanstalkd", "", words="--faults kill", how=" (which causes no faults without `-b`)"),
    Row("peer-f0", "beanstalkd", "-b -f0 -s 65536"),
    Row("peer-f0-kill", "beanstalkd", "-b -f0 -s 65536", words="--faults kill,stop"),
    Row("peer-f0-small", "beanstalkd", "-b -f0 -s 65536", words="--largest 20000"),
    Row("memory", "beanpole", ""),
    Row("f0", "beanpole", "-b -f0 -s 65536"),
    Row("f50", "beanpole", "-b -f50 -s 65536"),
    Row("F", "beanpole", "-b -F -s 65536"),
    Row("tls", "beanpole", "-b -f0 -s 65536", TLS, "--tls"),
    Row("journal", "beanpole", "-b -s 65536", JOURNAL, SYNC, ALONE),
    Row("pair", "beanpole", "-b -s 65536", PAIR, SYNC, TOGETHER),
    Row("f0-long", "beanpole", "-b -f0 -s 65536", seed=12, rounds=1000, seconds=LONG),
    Row("f50-long", "beanpole", "-b -f50 -s 65536", seed=13, rounds=1000, seconds=LONG),
    Row("F-long", "beanpole", "-b -F -s 65536", seed=14, rounds=1000, seconds=LONG),
    Row("tls-long", "beanpole", "-b -f0 -s 65536", TLS, "--tls", "", 15, 1000, LONG),
    Row("memory-long", "beanpole", "", seed=16, rounds=1000, seconds=LONG),
    Row("journal-long", "beanpole", "-b -s 65536", JOURNAL, SYNC, ALONE, 17, 1000, LONG),
    Row("pair-long", "beanpole", "-b -s 65536", PAIR, SYNC, TOGETHER, 18, 1000, LONG),
]


def selected(names):
    known = {row.name: [row] for row in ROWS}
    known |= {"short": [row for row in ROWS if not row.is_long], "long": [row for row in ROWS if row.is_long]}
    unknown = [name for name in names.split(",") if name not in known]
    if unknown:
        raise SystemExit(f"unknown rows: {', '.join(unknown)}; known rows: {', '.join(known)}")
    return [row for name in names.split(",") for row in known[name]]


def cells(row, output, commit):
    """Returns the row of the page, from the output of the judge, or `None` if the output is incomplete."""
    version = re.match(rf"{row.server} (\S+?):? ", output)
    counts = re.search(r"^(\d+) rounds, (\d+) commands, \d+ violations$", output, re.MULTILINE)
    if not version or not counts:
        return None
    found = re.findall(r"^\| ([a-z].*?) \| (\d+) \| \d+ of \d+ \|", output, re.MULTILINE)
    violations = ", ".join(f"{rule}: {count}" for rule, count in found) or "none"
    version = version[1] + (f", commit {commit}" if commit and row.server == "beanpole" else "")
    values = [row.server, version, row.title(), row.seed, *counts.groups(), time.strftime("%Y-%m-%d"), violations]
    return "| " + " | ".join(map(str, values)) + " |"


def replaced(page, row, line):
    """Replaces the row with the same server, options and seed in the page, or adds it to the table to which it
    belongs."""
    lines = page.split("\n")
    tables = [number for number, text in enumerate(lines) if text == HEADER]
    begin = tables[1 if row.is_long else 0] + 2
    end = next(number for number in range(begin, len(lines)) if not lines[number].startswith("|"))
    key = [str(row.server), row.title(), str(row.seed)]
    for number in range(begin, end):
        old = [cell.strip() for cell in lines[number].strip("|").split("|")]
        if [old[0], old[2], old[3]] == key:
            lines[number] = line
            return "\n".join(lines)
    lines.insert(end, line)
    return "\n".join(lines)


def certificate(folder):
    cert, key = os.path.join(folder, "tls.pem"), os.path.join(folder, "tls.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "3", "-keyout", key, "-out", cert, "-subj", "/CN=localhost"],
                   check=True, capture_output=True)
    return {"cert": cert, "key": key}


def run(row, args, world):
    """Judges a row and replaces it in the page. Returns `True` if the result is as expected."""
    command = row.judge(args, world)
    print(f"\n{row.name}: judge.py {' '.join(repr(word) if ' ' in word else word for word in command)}", flush=True)
    judged = subprocess.run([sys.executable, os.path.join(PLACE, "judge.py"), *command], capture_output=True, text=True)
    print(judged.stdout + judged.stderr, flush=True)
    line = cells(row, judged.stdout, args.commit)
    if judged.returncode not in (0, 1) or "cannot test" in judged.stdout or not line:
        print(f"{row.name}: not judged, or not with all faults; the page keeps the old row", flush=True)
        return False
    with open(args.page) as file:
        page = file.read()
    with open(args.page, "w") as file:
        file.write(replaced(page, row, line))
    return row.server == "beanstalkd" or judged.returncode == 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:], epilog=__doc__.split("\n\n")[2])
    parser.add_argument("--program", default="beanpole")
    for name in ("--commit", "--tls-program", "--peer", "--etcd"):
        parser.add_argument(name, default="")
    parser.add_argument("--rows", default="short")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--page", default=os.path.join(PLACE, "../../benches/JUDGE.md"))
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    rows = ROWS if args.list else selected(args.rows)
    if args.list:
        for row in rows:
            print(f"{row.name}: {' '.join(row.judge(args, {}))}")
        return 0
    missing = sorted({name for row in rows for name in row.needs(args)})
    if missing:
        parser.error(f"these rows need {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as folder:
        world, etcds = {}, None
        if any("{key}" in row.command for row in rows):
            world |= certificate(folder)
        try:
            if any("{hosts}" in row.command for row in rows):
                sys.path.insert(0, os.path.join(PLACE, "../cluster"))
                from world import World
                etcds = World(args.program, args.etcd, names="")
                world["hosts"] = ",".join(f"127.0.0.1:{port}" for port in etcds.clients)
            done = [run(row, args, world) for row in rows]
        finally:
            if etcds:
                etcds.close()
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
