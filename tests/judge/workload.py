"""The behavior of the clients in a round: producers, workers, and clients that inspect and modify jobs.

Owns the choice of commands. A seed determines all choices. Must not check replies."""

MEAN = 0.01


class Plan:
    """The random choices of one round."""

    def __init__(self, random, size):
        self.random, self.size = random, size
        self.tubes = [f"tube{n}" for n in range(3)]
        # The IDs in replies so far, except for jobs that are known to be deleted.
        self.ids, self.serial = [], 0
        # `calm` stops the producers. `over` stops all clients.
        self.calm = self.over = False

    def body(self):
        kinds = (0, 1, 20, 100, 1000, 4096, 20000, self.size - 1, self.size, self.size + 1)
        size = self.random.choices(kinds, (1, 1, 20, 20, 8, 3, 2, 1, 1, 1))[0]
        self.serial += 1
        text = f"{self.serial}:".encode() * 2
        filler = self.random.randbytes(min(size, 64))
        return (text + filler * (size // 32 + 1))[:size]

    def pause(self):
        return self.random.expovariate(1 / MEAN)

    # The clients. Each function yields commands, or numbers of seconds to sleep.

    def producer(self, name):
        while not self.over and not self.calm:
            if self.random.random() < 0.3:
                yield f"use {self.random.choice(self.tubes)}", None
            body = self.body()
            pri = self.random.choice((0, 1, 1, 1, 5, 1024, 4294967295))
            delay = self.random.choices((0, 1, 2), (10, 1, 1))[0]
            ttr = self.random.choices((0, 1, 2, 60), (1, 5, 3, 1))[0]
            if self.random.random() < 0.01:
                yield f"put {pri} 0 1 {len(body) + 9}\r\n".encode() + body
            reply = yield f"put {pri} {delay} {ttr} {len(body)}", body
            if reply.outcome == "INSERTED":
                self.ids.append(reply.job)
            yield self.pause()

    def worker(self, name):
        yield f"watch {self.random.choice(self.tubes)}", None
        yield f"watch {self.random.choice(self.tubes)}", None
        if self.random.random() < 0.5:
            yield "ignore default", None
        held = []
        while not self.over:
            how = self.random.choices(("reserve-with-timeout 0", "reserve-with-timeout 1", "reserve"), (6, 3, 1))[0]
            reply = yield how, None
            if reply.outcome == "RESERVED":
                held.append(reply.job)
            if self.random.random() < 0.02:
                return
            if len(held) >= self.random.randint(1, 4):
                yield from self.work(held)
            yield self.pause()

    def work(self, held):
        """Ends some of the held reservations in random ways."""
        while held and self.random.random() < 0.8:
            job = held.pop(self.random.randrange(len(held)))
            kinds = ("delete", "release", "bury", "touch", "wait", "silence")
            what = self.random.choices(kinds, (50, 15, 8, 12, 5, 4))[0]
            if what == "wait":
                yield 0.7 * self.random.random()
                what = "touch"
            elif what == "silence":
                # Waits longer than most times to run, so that the reservation usually expires.
                yield 2.5 + self.random.random()
                what = "delete"
            pri = self.random.choice((0, 1, 5, 4000))
            delay = self.random.choice((0, 0, 0, 1))
            rest = {"release": f" {pri} {delay}", "bury": f" {pri}"}.get(what, "")
            yield f"{what} {job}{rest}", None
            if what == "touch":
                held.append(job)

    def sleeper(self, name):
        """Reserves jobs and then stays silent."""
        for tube in self.tubes:
            yield f"watch {tube}", None
        for _ in range(self.random.randint(1, 3)):
            reply = yield "reserve-with-timeout 0", None
            if reply.outcome == "RESERVED" and self.random.random() < 0.3:
                yield self.random.random() / 2
                yield f"touch {reply.job}", None
        yield 1e9

    def sweeper(self, name):
        """Deletes ready jobs, so that the newest jobs usually do not exist any more when the server ends."""
        for tube in self.tubes:
            yield f"watch {tube}", None
        while True:
            reply = yield "reserve-with-timeout 1", None
            if reply.outcome != "RESERVED":
                break
            yield f"delete {reply.job}", None

    def meddler(self, name):
        """Inspects jobs and changes jobs of other clients."""
        while not self.over:
            yield f"use {self.random.choice(self.tubes)}", None
            if self.ids:
                job = self.random.choice(self.ids[-200:])
                weights = (20, 10, 5, 3, 1)
                what = self.random.choices(("stats-job", "peek", "kick-job", "delete", "kick"), weights)[0]
                yield (f"kick {self.random.randint(1, 5)}" if what == "kick" else f"{what} {job}"), None
            yield 3 * self.pause()

    def inspector(self, name):
        """Inspects every job and the statistics while no other client is active."""
        for job in self.ids:
            yield f"stats-job {job}", None
        for job in self.ids[-50:]:
            yield f"peek {job}", None
        yield "stats", None
        for tube in self.tubes:
            yield f"stats-tube {tube}", None

    def drainer(self, name):
        """Kicks, reserves and deletes all jobs. Inspects the jobs before and afterwards."""
        for tube in self.tubes:
            yield f"watch {tube}", None
        for tube in self.tubes + ["default"]:
            yield f"use {tube}", None
            while True:
                reply = yield "kick 1000", None
                if reply.outcome != "KICKED" or reply.words and reply.reply == "KICKED 0":
                    break
        yield from self.inspector(name)
        while True:
            reply = yield "reserve-with-timeout 0", None
            if reply.outcome != "RESERVED":
                break
            yield f"delete {reply.job}", None
        yield from self.inspector(name)
