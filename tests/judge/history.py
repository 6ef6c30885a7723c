"""The commands sent to a server and its replies, with their times, and excerpts that show violations.

Owns the representation of a history. Must not check replies."""

from dataclasses import dataclass, field

NEVER = float("inf")


@dataclass
class Op:
    """A command with its reply. If the command has no reply, `done` is `NEVER` and `reply` is empty."""

    conn: str
    sent: float
    line: str
    body: bytes = None
    done: float = NEVER
    reply: str = ""
    data: bytes = b""
    # The tube that the connection uses, and the tubes that it watches.
    used: str = "default"
    watched: frozenset = frozenset()
    end: float = NEVER
    # `True` if no other command was waiting for a reply at the same time.
    quiet: bool = False
    number: int = 0

    @property
    def verb(self):
        return self.line.split(" ", 1)[0]

    @property
    def words(self):
        return self.line.split(" ")

    @property
    def outcome(self):
        return self.reply.split(" ", 1)[0]

    @property
    def is_whole(self):
        """Returns `True` if the body of a put has the announced length."""
        return len(self.body) == int(self.words[4])

    @property
    def job(self):
        """Returns the ID of the job in the command or in its reply."""
        if self.verb in NAMES_JOB:
            return int(self.words[1])
        if self.outcome in ("INSERTED", "RESERVED", "FOUND") or (self.verb == "put" and self.outcome == "BURIED"):
            return int(self.reply.split(" ")[1])
        return None


NAMES_JOB = {"delete", "release", "bury", "touch", "kick-job", "stats-job", "peek", "reserve-job"}


@dataclass
class Mark:
    """An event other than a command: a connection was closed (`close`), or the server was stopped (`down`), was started
    (`up`) or exited by itself (`died`). `how`: if `down`, `stop`, `kill` or `power`; if `died`, the cause if known."""

    kind: str
    time: float
    conn: str = ""
    how: str = ""


@dataclass
class Violation:
    rule: str
    text: str
    job: int = None
    witnesses: list = field(default_factory=list)

    def key(self):
        return self.rule, self.job


def complete(history):
    """Adds properties that follow from the order of events: the used and watched tubes, and for commands without a
    reply, the latest time at which they can have been executed."""
    ops = [step for step in history if isinstance(step, Op)]
    ends = {}
    last = max((step.time if isinstance(step, Mark) else min(step.done, 1e18) for step in history), default=0)
    for mark in history:
        if isinstance(mark, Mark) and mark.kind == "close":
            ends[mark.conn] = mark.time
    downs = sorted(step.time for step in history if isinstance(step, Mark) and step.kind == "down")
    used, watched = {}, {}
    for number, op in enumerate(sorted(ops, key=lambda op: op.sent)):
        op.number = number
        op.used = used.get(op.conn, "default")
        op.watched = watched.get(op.conn, frozenset(["default"]))
        if op.verb == "use" and op.outcome == "USING":
            used[op.conn] = op.words[1]
        if op.verb == "watch" and op.outcome == "WATCHING":
            watched[op.conn] = op.watched | {op.words[1]}
        if op.verb == "ignore" and op.outcome == "WATCHING":
            watched[op.conn] = op.watched - {op.words[1]}
        down = next((time for time in downs if time >= op.sent), NEVER)
        op.end = op.done if op.reply else min(ends.get(op.conn, last), down)
    return ops


def shown(step, start):
    if isinstance(step, Mark):
        return f"{step.time - start:9.3f}            {step.conn or 'server':>8} -- {step.kind} {step.how}".rstrip()
    body = f" [body of {len(step.body)} bytes]" if step.body is not None else ""
    reply = step.reply or "no reply"
    for name in (b"state", b"reserves", b"timeouts", b"time-left"):
        for row in step.data.split(b"\n") if step.verb == "stats-job" else ():
            if row.startswith(name + b":"):
                reply += " " + row.decode()
    done = f"{step.done - start:9.3f}" if step.reply else "         "
    return f"{step.sent - start:9.3f} {done}   {step.conn:>8} {step.line}{body} => {reply}"


def excerpt(history, violation, most=14):
    """Returns an excerpt of a history that shows a violation: commands about the job, and events of the server."""
    witnesses = {id(step) for step in violation.witnesses}
    conns, steps = set(), []
    last = max((w.time if isinstance(w, Mark) else w.end for w in violation.witnesses), default=NEVER)
    for step in history:
        if not isinstance(step, Op) or step.sent > last:
            continue
        if id(step) in witnesses or (violation.job is not None and step.job == violation.job):
            conns.add(step.conn)
            steps.append(step)
    first = min((step.sent for step in steps), default=0)
    for mark in history:
        if isinstance(mark, Mark) and first <= mark.time <= last and (mark.kind != "close" or mark.conn in conns):
            steps.append(mark)
    steps.sort(key=lambda step: step.time if isinstance(step, Mark) else step.sent)
    if len(steps) > most:
        kept = steps[:1] + [s for s in steps[1:-(most - 2)] if id(s) in witnesses] + steps[-(most - 2):]
        steps = kept
    return [shown(step, first) for step in steps]
