"""Checks a history for replies that violate the guarantees of the protocol or of the server's options.

Owns the rules. Must not communicate with a server or depend on a particular server. A command takes effect at some
moment between its sending and the arrival of its reply. A rule is violated only if no choice of these moments
explains the replies."""

from dataclasses import dataclass, field

from history import NEVER, Mark, Op, Violation, complete

# The replies that confirm a change of the job, by command.
CHANGED = {"delete": "DELETED", "release": "RELEASED", "bury": "BURIED", "touch": "TOUCHED", "kick-job": "KICKED"}


@dataclass
class Tolerances:
    """Tolerances in seconds for events that are too early or too late, and for losses beyond the sync interval."""

    early: float = 0.02
    late: float = 1.5
    sync: float = 0.5

    def __str__(self):
        return f"{self.early} s early, {self.late} s late, {self.sync} s after an interval of syncs"


@dataclass
class Job:
    """The state of a job, as far as the replies determine it. `state` is empty if they do not determine the state."""

    id: int
    put: Op
    tube: str
    pri: int
    ttr: float
    body: bytes
    state: str = ""
    # The time since which `state` is certain, and the earliest and the latest end of the delay or the reservation.
    since: float = 0
    low: float = NEVER
    high: float = NEVER
    holder: str = ""
    # The earliest time at which a client may have reserved the job.
    free: float = 0
    # `True` if a power failure may have removed or restored the job, until a reply shows whether the job exists.
    doubtful: bool = False
    gone: Op = None
    ready: list = field(default_factory=list)
    applied: set = field(default_factory=set)


class Judge:
    def __init__(self, history, window=0.0, tolerances=None):
        """Prepares a verdict. A power failure may undo the changes acknowledged in the last `window` seconds. `window`
        is 0 if the server syncs before each reply."""
        self.history, self.window, self.allow = history, window, tolerances or Tolerances()
        self.ops = complete(history)
        self.jobs, self.violations, self.seen = {}, [], set()
        self.by_job, self.puts_by_body = {}, {}
        for op in self.ops:
            if op.job is not None:
                self.by_job.setdefault(op.job, []).append(op)
            if op.verb == "put":
                self.puts_by_body.setdefault(op.body, []).append(op)
        # If the server returned an ID for two puts, the ID does not identify a job.
        self.reused = {}
        for number, ops in self.by_job.items():
            puts = [op for op in ops if op.verb == "put"]
            if len(puts) > 1:
                self.reused[number] = puts[1].sent
        self.kicks = [op for op in self.ops if op.verb == "kick"]
        # A reserve without a reply may have reserved any job.
        self.thieves = [op for op in self.ops if op.verb in ("reserve", "reserve-with-timeout") and not op.reply]
        self.counted = None
        self.up = 0

    def broken(self, rule, text, job, *witnesses):
        violation = Violation(rule, text, job, list(witnesses))
        if violation.key() not in self.seen:
            self.seen.add(violation.key())
            self.violations.append(violation)

    def run(self):
        def moment(step):
            return step.time if isinstance(step, Mark) else step.end

        steps = sorted(self.history, key=lambda step: (moment(step), isinstance(step, Mark)))
        for step in steps:
            if isinstance(step, Mark):
                self.mark(step)
            elif not step.reply:
                self.unanswered(step)
            else:
                self.reply(step)
        for job in self.jobs.values():
            self.leave(job, NEVER)
        self.served()
        return self.violations

    # Replies.

    def reply(self, op):
        if op.verb == "put":
            self.put(op)
        elif op.done > self.reused.get(op.job, NEVER):
            return
        elif op.outcome == "RESERVED":
            self.reserved(op)
        elif op.verb == "kick":
            self.kicked(op)
        elif op.verb == "stats":
            self.count(op)
        elif op.verb == "stats-tube" and op.quiet:
            self.count_tube(op)
        elif op.job is not None:
            job = self.find(op)
            if job and id(op) not in job.applied:
                self.about(job, op)

    def about(self, job, op):
        if op.outcome == "NOT_FOUND":
            self.not_found(job, op)
        elif op.verb in CHANGED:
            if op.outcome == CHANGED[op.verb]:
                self.change(job, op)
            else:
                # The reply is an error, so the effect is uncertain. After a delete, the job may not exist.
                self.leave(job, op.sent)
                self.forget(job)
                job.doubtful |= op.verb == "delete"
        elif op.outcome == "FOUND":
            self.exists(job, op)
            self.compare(job, op)
        elif op.verb == "stats-job":
            self.exists(job, op)
            self.look(job, op)

    def put(self, op):
        if op.outcome not in ("INSERTED", "BURIED"):
            return
        known = self.jobs.get(op.job)
        if known and known.put is not op:
            self.broken("id reused", f"the ID {op.job} was given to two jobs", op.job, known.put, op)
            self.leave(known, op.sent)
            known.state, known.doubtful = "", True
            return
        if not known:
            self.create(op.job, op)

    def create(self, number, op):
        _, pri, delay, ttr, _ = op.words[:5]
        job = self.jobs[number] = Job(number, op, op.used, int(pri), max(1, int(ttr)), op.body)
        if op.outcome == "BURIED":
            self.enter(job, "buried", op)
        elif int(delay):
            self.enter(job, "delayed", op, int(delay))
        else:
            self.enter(job, "ready", op)
        if not op.reply:
            job.put = op
            job.state = ""
        return job

    def find(self, op):
        """Returns the job that a reply contains. If the job is unknown, searches for a put that has no reply, or whose
        reply arrives later."""
        job = self.jobs.get(op.job)
        if job or op.outcome not in ("RESERVED", "FOUND"):
            return job
        puts = [put for put in self.puts_by_body.get(op.data, ()) if put.sent <= op.done]
        # A put without a complete body creates no job.
        puts = [put for put in puts if put.job == op.job] or [put for put in puts if not put.reply and put.is_whole]
        if puts:
            return self.create(op.job, puts[0])
        if any(put.job == op.job for put in self.by_job[op.job] if put.verb == "put" and put.sent <= op.done):
            put = next(put for put in self.by_job[op.job] if put.verb == "put")
            return self.create(op.job, put)
        if op.data and all(put.job != op.job for put in self.by_job[op.job] if put.verb == "put"):
            self.broken("invented job", f"job {op.job} has a body that no client has put", op.job, op)
        return None

    def reserved(self, op):
        job = self.find(op)
        if not job:
            return
        self.exists(job, op)
        self.compare(job, op)
        for other in self.by_job[job.id]:
            # Commands that are in progress when the reply to the reservation arrives took effect before the
            # reservation.
            if other.sent < op.done < other.end and other.conn != op.conn and id(other) not in job.applied:
                if other.verb in CHANGED and other.verb != "delete" and other.outcome in ("", CHANGED[other.verb]):
                    job.applied.add(id(other))
                    self.change(job, other) if other.reply else self.forget(job)
        if job.gone and op.sent < job.gone.done:
            return
        if job.state == "reserved" and op.done < job.low - self.allow.early:
            which = "handed out twice" if op.conn != job.holder else "handed out again"
            self.broken("reserved twice", f"job {job.id} was {which} before its time limit", job.id, job.taken, op)
        elif job.state == "delayed" and op.verb != "reserve-job" and op.done < job.low - self.allow.early:
            if not self.disturbed(job, job.since, op.done):
                self.broken("delay too short", f"job {job.id} was served {job.low - op.done:.3f} s early", job.id, op)
        elif job.state == "buried" and op.verb != "reserve-job" and not self.disturbed(job, job.since, op.done):
            self.broken("buried job served", f"job {job.id} was served while it was buried", job.id, op)
        op.rank = None if job.pri is None else (job.pri, job.id)
        if job.state == "reserved":
            job.free = min(job.low, op.done)
        self.leave(job, op.sent)
        job.state, job.holder, job.since, job.taken = "reserved", op.conn, op.done, op
        # If the worker waited for a long time, it may have received the job at the moment when the job became ready.
        job.free = max(op.sent, job.put.sent, job.free)
        job.low, job.high = job.free + job.ttr, op.done + job.ttr

    def compare(self, job, op):
        if op.data != job.body:
            what = f"job {job.id} was put with {len(job.body)} bytes and returned with {len(op.data)} other bytes"
            self.broken("body changed", what, job.id, job.put, op)

    def exists(self, job, op):
        if job.doubtful and op.sent > self.up:
            job.doubtful, job.gone = False, None
        if job.gone and op.sent > job.gone.done:
            self.broken("deleted job is back", f"job {job.id} was deleted and exists again", job.id, job.gone, op)
            job.gone = None
            job.state = ""

    def holds(self, job, op):
        """Returns `True` if the connection certainly held the job when the reply to the command arrived."""
        return job.state == "reserved" and job.holder == op.conn and op.done < job.low - self.allow.early

    def not_found(self, job, op):
        if op.verb in ("delete", "release", "bury", "touch") and self.holds(job, op):
            left = job.low - op.done
            text = f"the reservation of job {job.id} ended {left:.3f} s early"
            self.broken("time limit too short", text, job.id, job.taken, op)
            return
        certain = self.certain(job, op.sent, op.done)
        shows = op.verb in ("peek", "stats-job") or (op.verb == "delete" and certain in ("ready", "delayed", "buried"))
        # A reservation can reveal an ID before the reply to the put of the job arrives.
        if not shows or op.sent < job.put.end or job.gone or not job.put.reply:
            return
        if job.doubtful:
            job.gone, job.doubtful = op, False
        elif op.verb == "delete" and job.state == "reserved":
            text = f"job {job.id} could not be deleted {op.sent - job.high:.3f} s after its time limit"
            self.broken("time limit lost", text, job.id, job.taken, op)
        elif not any(o.verb == "delete" and o.outcome != "NOT_FOUND" and o.sent < op.done for o in self.by_job[job.id]):
            self.broken("job lost", f"job {job.id} was acknowledged, never deleted, and is lost", job.id, job.put, op)
            job.gone = op

    def change(self, job, op):
        if op.verb == "delete":
            stranger = job.state == "reserved" and job.holder != op.conn and op.done < job.low - self.allow.early
            if stranger and not self.others(job, op):
                text = f"job {job.id} was reserved by {job.holder}"
                self.broken("deleted by a stranger", text, job.id, job.taken, op)
            self.leave(job, op.sent)
            if job.gone and op.sent > job.gone.done:
                self.broken("deleted job is back", f"job {job.id} was deleted twice", job.id, job.gone, op)
            job.gone, job.state, job.doubtful = op, "", False
            return
        self.exists(job, op)
        if op.verb == "kick-job":
            self.leave(job, op.sent)
            self.enter(job, "ready", op)
            return
        if job.state == "reserved" and job.holder == op.conn and op.sent > job.high + self.allow.late:
            text = f"job {job.id} was still reserved {op.sent - job.high:.3f} s after its limit"
            self.broken("time limit lost", text, job.id, job.taken, op)
        if op.verb == "touch":
            if job.state == "reserved" and job.holder == op.conn:
                job.low, job.high = op.sent + job.ttr, op.done + job.ttr
            return
        self.leave(job, op.sent)
        job.pri = int(op.words[2])
        if op.verb == "bury":
            self.enter(job, "buried", op)
        elif int(op.words[3]):
            self.enter(job, "delayed", op, int(op.words[3]))
        else:
            self.enter(job, "ready", op)

    def others(self, job, op):
        """Returns other commands about the job that were in progress at the same time as this command."""
        beside = [o for o in self.by_job[job.id] if o.sent < op.done and o.end > op.sent and o.conn != op.conn]
        return [o for o in beside if o.verb not in ("peek", "stats-job")]

    def look(self, job, op):
        """Compares the reported state of a job with the state that follows from the history."""
        rows = dict(row.split(": ", 1) for row in op.data.decode().split("\n") if ": " in row)
        state, model = rows.get("state"), self.certain(job, op.sent, op.done)
        if self.others(job, op) or not model or state == model:
            unsure = self.others(job, op) or self.thief(job, op.sent, op.done)
            if not model and state in ("ready", "buried") and not unsure:
                job.state, job.since, job.pri = state, op.done, int(rows.get("pri", 0))
            return
        text = f"job {job.id} is {state}, and should be {model}"
        if model == "ready" and state == "reserved":
            if job.state != "reserved":
                self.broken("state wrong", text, job.id, op)
                return
            late = op.sent - job.high
            text = f"job {job.id} is still reserved {late:.3f} s after its time limit"
            self.broken("time limit lost", text, job.id, job.taken, op)
        elif model == "reserved" and state == "ready" and op.done < job.low - self.allow.early:
            self.broken("time limit too short", text, job.id, job.taken, op)
        elif model == "ready" and state == "delayed":
            self.broken("delay too long", text, job.id, op)
        else:
            self.broken("state wrong", text, job.id, op)
        self.forget(job)

    # Effects on the recorded state of jobs.

    def enter(self, job, state, op, seconds=0):
        job.state, job.since, job.low, job.high = state, op.end, op.sent + seconds, op.end + seconds
        job.free = op.sent
        if state in ("buried", "delayed") and self.disturbed(job, op.sent, op.end):
            job.state = ""

    def leave(self, job, time):
        """Makes the state unknown from `time` on. Records the interval in which the job was certainly ready."""
        start = self.ready_since(job)
        if start is not None and start < time and job.pri is not None and not job.gone and not job.doubtful:
            job.ready.append((start, time, job.pri))

    def ready_since(self, job):
        if job.state == "ready":
            return job.since
        if job.state in ("reserved", "delayed"):
            return job.high + self.allow.late
        return None

    def forget(self, job):
        job.state, job.pri, job.free = "", None, 0

    def certain(self, job, start, end):
        """Returns the state that the job certainly had from `start` to `end`, or `None`."""
        if job.gone or job.doubtful or not job.state or start < job.since or self.thief(job, start, end):
            return None
        if job.state in ("reserved", "delayed"):
            if end < job.low - self.allow.early:
                return None if job.state == "delayed" and self.disturbed(job, start, end) else job.state
            return "ready" if start > job.high + self.allow.late else None
        if job.state == "buried" and self.disturbed(job, start, end):
            return None
        return job.state

    def thief(self, job, start, end):
        return any(op.sent < end and op.end + self.allow.late > start and job.tube in op.watched for op in self.thieves)

    def disturbed(self, job, start, end):
        """Returns `True` if a kick may have moved a buried or delayed job between `start` and `end`."""
        return any(op.used == job.tube and op.sent < end and op.end > start for op in self.kicks)

    def kicked(self, op):
        for job in self.jobs.values():
            if job.tube == op.used and job.state in ("buried", "delayed"):
                self.leave(job, op.sent)
                job.state, job.free = "", 0

    def unanswered(self, op):
        """Handles a command without a reply, which may have been executed."""
        if op.verb == "kick":
            self.kicked(op)
            for job in self.jobs.values():
                # The kick may have made the job ready for the reservation, and a power failure may undo the kick.
                if job.tube == op.used and job.state == "reserved" and job.since >= op.sent:
                    self.leave(job, op.sent)
                    self.forget(job)
        job = self.jobs.get(op.job)
        if job and op.verb in CHANGED and op.end <= self.reused.get(op.job, NEVER):
            self.leave(job, op.sent)
            self.forget(job)
            if op.verb == "delete":
                job.doubtful = True

    def mark(self, mark):
        if mark.kind == "close":
            for job in self.jobs.values():
                if job.state == "reserved" and job.holder == mark.conn:
                    job.free = min(mark.time, job.low)
                    job.state, job.since = "ready", min(mark.time, job.high) + self.allow.late
        elif mark.kind == "down":
            self.down(mark)
        elif mark.kind == "died":
            self.broken("server ended", mark.how, None, *[op for op in self.ops if op.sent < mark.time][-4:], mark)
        else:
            self.up = mark.time
            for job in self.jobs.values():
                if job.state in ("ready", "reserved"):
                    job.state, job.since, job.free = "ready", mark.time, 0

    def down(self, mark):
        safe = mark.time - self.window - self.allow.sync
        self.counted = None
        for job in self.jobs.values():
            self.leave(job, mark.time)
            if mark.how != "power" or not self.window:
                continue
            late = [op for op in self.by_job[job.id] if safe < op.end and op.sent < mark.time
                    and (op.verb == "put" or op.verb in CHANGED)]
            late += [op for op in self.kicks if op.used == job.tube and safe < op.end and op.sent < mark.time]
            if late:
                self.forget(job)
                job.doubtful |= any(op.verb in ("put", "delete") for op in late)

    # The order of reservations.

    def served(self):
        for op in self.ops:
            if op.verb not in ("reserve", "reserve-with-timeout") or not op.reply:
                continue
            if op.outcome == "RESERVED":
                self.order(op)
            elif op.outcome == "TIMED_OUT":
                self.starved(op)

    def waiting(self, op, start):
        for job in self.jobs.values():
            if job.tube in op.watched:
                for since, until, pri in job.ready:
                    if since <= start and until >= op.done and not self.thief(job, start, op.done):
                        yield pri, job.id, job

    def order(self, op):
        rank = getattr(op, "rank", None)
        better = rank and min(((pri, number) for pri, number, _ in self.waiting(op, op.sent)), default=None)
        if better and better < rank and better[1] != op.job:
            how = "a lower priority" if better[0] < rank[0] else "the same priority and a smaller ID"
            text = f"job {op.job} was served although job {better[1]} was ready with {how}"
            about = [o for o in self.by_job[better[1]] if o.sent < op.sent and o.verb not in ("peek", "stats-job")]
            self.broken("order", text, op.job, *about, op)

    def starved(self, op):
        start = op.sent if op.done - op.sent <= self.allow.late else op.done - self.allow.late
        for _, number, _ in self.waiting(op, start):
            about = [o for o in self.by_job[number] if o.sent < op.sent]
            self.broken("not served", f"TIMED_OUT although job {number} was ready", number, *about, op)
            return

    # Server statistics.

    COUNTED = {f"cmd-{verb}": verb for verb in "put delete release bury kick touch peek use stats-job".split()}
    STATES = ("current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried")

    def numbers(self, op):
        rows = (row.split(": ", 1) for row in op.data.decode().split("\n") if ": " in row)
        return {name: int(value) for name, value in rows if value.isdigit()}

    def total(self, op, jobs):
        if any(time < op.sent for time in self.reused.values()):
            return
        found = sum(self.numbers(op).get(name, 0) for name in self.STATES)
        unknown = sum(1 for job in jobs if job.doubtful)
        known = sum(1 for job in jobs if not job.gone and not job.doubtful)
        clear = ("INSERTED", "BURIED", "JOB_TOO_BIG")
        unknown += sum(put.verb == "put" and put.sent < op.sent and put.outcome not in clear for put in self.ops)
        if op.quiet and not known <= found <= known + unknown:
            text = f"the server counts {found} jobs; the history has {known}, and {unknown} that may exist"
            self.broken("count of jobs", text, None, op)

    def count(self, op):
        if not op.quiet:
            return
        self.total(op, [job for job in self.jobs.values()])
        now = self.numbers(op)
        if self.counted:
            before, then = self.counted
            between = [o for o in self.ops if then.done <= o.sent and o.sent < op.sent]
            lost = sum(1 for o in between if not o.reply)
            for name, verb in self.COUNTED.items():
                if name not in now or name not in before:
                    continue
                sent = sum(1 for o in between if o.verb == verb)
                self.counter(name, now[name] - before[name], sent - lost, sent, then, op)
            made = sum(1 for o in between if o.verb == "put" and o.outcome in ("INSERTED", "BURIED"))
            rose = now.get("total-jobs", 0) - before.get("total-jobs", 0)
            self.counter("total-jobs", rose, made, made + lost, then, op)
        self.counted = now, op

    def counter(self, name, delta, least, most, then, op):
        if not least <= delta <= most:
            text = f"{name} rose by {delta}, and should have risen by {least} to {most}"
            self.broken(f"counter {name}", text, None, then, op)

    def count_tube(self, op):
        if op.outcome == "OK":
            self.total(op, [job for job in self.jobs.values() if job.tube == op.words[1]])


def judge(history, window=0.0, tolerances=None):
    return Judge(history, window, tolerances).run()
