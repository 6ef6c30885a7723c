#!/usr/bin/env python3
"""Judges a server that speaks the beanstalk protocol by the history of its replies.

usage: judge.py 'command with {port} and {dir}' [--promise P] [--seed N] [--rounds N] [--seconds S] [--faults LIST]
                [--largest BYTES] [--tls] [--until RULES]

Each round starts the server in an empty directory, lets producers and workers use it, and may stop or kill it and start
it again. P determines which acknowledged changes a power failure may undo: no changes (`sync`), those of the last P
milliseconds (a number), or all (`none`). The default follows from -f and -F in the command. LIST contains some of kill,
power, stop, full and clock. Without {dir}, the server stores nothing, and the only fault is its clock. {round} is a
different name in each round, for a server that also stores jobs elsewhere. With {node}, the command is started twice,
as the nodes a and b of a cluster; a fault ends the active node. --largest limits the bodies; by default, they reach the
limit that `stats` reports. --tls uses TLS, and accepts any certificate. --until ends the run after the round in which
all of these rules have been violated. The exit status is 1 if a promise was broken, and 2 if a fault in LIST cannot be
tested.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

from clients import World  # noqa: E402
from history import NEVER, Mark, Op, excerpt  # noqa: E402
from server import SHIMMED, Gone, Server, build_shim  # noqa: E402
from verdict import Tolerances, judge  # noqa: E402
from workload import Plan  # noqa: E402

FAULTS = ("kill", "power", "stop", "full", "clock")


def window(promise, command):
    """Returns the number of seconds before a power failure whose acknowledged changes the failure may undo. By default,
    the options -f and -F of the server determine this number."""
    if promise == "":
        words, promise = command.split(), "50"
        for place, word in enumerate(words):
            if word == "-F":
                promise = "none"
            elif word.startswith("-f"):
                promise = word[2:] or words[place + 1]
    if promise == "none":
        return NEVER
    return 0.0 if promise in ("sync", "0") else int(promise) / 1000


def size_limit(world):
    """Returns the size of the largest body that the server accepts, according to `stats`."""
    sizes = []

    def ask(_):
        reply = yield "stats", None
        rows = reply.data.decode().split("\n")
        sizes.extend(int(row.split(": ")[1]) for row in rows if row.startswith("max-job-size:"))
    world.add("asks", ask)
    world.run(10, lambda: sizes)
    if not sizes:
        raise Gone("stats shows no max-job-size")
    return sizes[0]


def inspect(world, plan, client, kind):
    """Waits until only silent clients remain. Then lets one client check all jobs."""
    plan.over = True
    for connection in list(world.connections.values()):
        if not connection.name.startswith("sleeper"):
            world.run(0.3, lambda: not connection.op)
            world.drop(connection)
    world.run(2 + Tolerances().late + 0.2)
    name = world.add(kind, client)
    world.run(60, lambda: name not in world.connections)
    if name in world.connections:
        raise Gone("no reply within 60 s")
    plan.over = False


def choose(wanted, stores, shim):
    """Returns the faults to inject: those of the wanted faults that can be injected."""
    faults = [fault for fault in wanted if stores or fault == "clock"]
    return [fault for fault in faults if shim or fault not in SHIMMED]


def play(args, number, scratch, shim, faults, deadline):
    """Runs one round and returns the history."""
    seed = f"{args.seed}.{number}"
    chance = random.Random(seed)
    server = Server(args.server, scratch, shim, f"judge-{os.getpid()}-{number}", faults)
    world = World(server, args.tls)
    try:
        world.up()
        scenes(args, world, chance, deadline)
    except Gone as gone:
        world.history.append(Mark("died", time.monotonic(), how=str(gone)))
    finally:
        server.end_all()
    return world.history


def scenes(args, world, chance, deadline):
    """Runs three scenes with traffic, silent clients and possibly a fault. After each scene, a client checks all
    jobs."""
    server, plan = world.server, Plan(chance, args.largest or size_limit(world))
    for _ in range(3):
        fault, plan.calm = chance.choice(server.faults) if server.faults else "", False
        server.set_flag("full", fault == "full")
        server.set_flag("slow", fault in ("kill", "power"))
        for client in [plan.producer] * 3 + [plan.worker] * 5 + [plan.meddler]:
            world.add(client.__name__, client)
        world.run(chance.uniform(0.5, 1.0))
        if fault == "clock":
            server.set_clock(chance.choice((-86400, -3600, -60, 60, 3600, 86400)))
        world.run(chance.uniform(0.5, 1.0))
        for _ in range(chance.randint(5, 12)):
            world.add("sleeper", plan.sleeper)
        plan.calm = chance.random() < (0.25 if fault == "power" else 0.5)
        if plan.calm:
            name = world.add("sweeper", plan.sweeper)
            world.run(5, lambda: name not in world.connections)
        if fault in ("kill", "power"):
            world.run(0.3)
            # If a reply does not wait for the sync, the sync has probably not ended when the reply arrives.
            known = len(plan.ids)
            world.run(0.2, lambda: len(plan.ids) > known)
            world.down(fault, chance)
            server.set_flag("slow", False)
            world.up()
        server.set_flag("full", False)
        inspect(world, plan, plan.inspector, "looks")
        # Restarts the server only now, when all delays that it stored with the old clock have ended.
        if fault in ("stop", "full") or fault == "clock" and server.stores:
            world.down("stop", chance)
            world.up()
        if time.monotonic() > deadline:
            break
    inspect(world, plan, plan.drainer, "drains")


def version(command):
    program = command.split()[0]
    try:
        done = subprocess.run([program, "-v"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
        return done.stdout.strip() or program
    except (OSError, subprocess.TimeoutExpired):
        return program


def report(found, rounds, ops):
    """Prints the table of rules, and the shortest history for each violated rule."""
    print(f"\n{rounds} rounds, {ops} commands, {sum(len(cases) for cases in found.values())} violations\n")
    print("| rule | violations | rounds | first |\n|---|---|---|---|")
    for rule, cases in sorted(found.items()):
        seeds = sorted({case[0] for case in cases})
        print(f"| {rule} | {len(cases)} | {len(seeds)} of {rounds} | round {cases[0][0]}: {cases[0][1].text} |")
    for rule, cases in sorted(found.items()):
        number, violation, rows = min(cases, key=lambda case: len(case[2]))
        print(f"\n{rule}, round {number}: {violation.text}\n\n      sent      done     client command => reply")
        for row in rows:
            print(row)
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:], epilog=__doc__.split("\n\n")[2])
    parser.add_argument("server")
    parser.add_argument("--promise", default="")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--faults")
    parser.add_argument("--largest", type=int, default=0)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--until", default="")
    args = parser.parse_args()
    wanted = FAULTS if args.faults is None else [fault for fault in args.faults.split(",") if fault]
    if unknown := [fault for fault in wanted if fault not in FAULTS]:
        parser.error(f"unknown faults: {', '.join(unknown)}")
    allowed = window(args.promise, args.server)
    # The shim compares paths with those of /proc, which contain no symbolic links.
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="judge"))
    try:
        return run(args, wanted, allowed, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run(args, wanted, allowed, scratch):
    """Runs and judges all rounds. Returns the exit status."""
    shim = build_shim(scratch)
    stores = "{dir}" in args.server
    faults = choose(wanted, stores, shim)
    dropped = [fault for fault in choose(wanted, stores, "shim") if fault not in faults]
    print(f"{version(args.server)}: {args.server}\nseed {args.seed}; {time.strftime('%Y-%m-%d')}; "
          f"tolerances: {Tolerances()}; a power cut may undo {'everything' if allowed == NEVER else f'{allowed:g} s'}\n"
          f"faults: {', '.join(faults) or 'none'}", flush=True)
    if dropped:
        print(f"cannot test {', '.join(dropped)}: a C compiler (cc) is missing", flush=True)
        if args.faults is not None:
            return 2
    used = list(faults)
    deadline = time.monotonic() + args.seconds
    found, rounds, ops = {}, 0, 0
    awaited = {rule for rule in args.until.split(",") if rule}
    while rounds < args.rounds and (not rounds or time.monotonic() < deadline):
        history = play(args, rounds, scratch, shim, faults, deadline)
        for violation in judge(history, allowed):
            found.setdefault(violation.rule, []).append((rounds, violation, excerpt(history, violation)))
        rounds += 1
        ops += sum(isinstance(step, Op) for step in history)
        if awaited and awaited <= set(found):
            break
    report(found, rounds, ops)
    if found:
        return 1
    return 2 if args.faults is not None and faults != used else 0


if __name__ == "__main__":
    sys.exit(main())
