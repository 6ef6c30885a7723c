"""Simulates a power failure of a directory, using the records of shim.c.

Owns the disk model. A file keeps the data written before its last successful sync began, and a random prefix of later
writes. As on ext4, a successful sync of any file makes all earlier changes of file names durable. A random prefix of
the later changes of names also survives. Must not interpret the contents."""

import os
import shutil


class File:
    def __init__(self, durable=b""):
        self.durable = bytearray(durable)
        self.pending = []

    def keep(self, count):
        for kind, offset, data in self.pending[:count]:
            if kind == "W":
                end = offset + len(data)
                if len(self.durable) < end:
                    self.durable.extend(bytes(end - len(self.durable)))
                self.durable[offset:end] = data
            elif kind == "T":
                del self.durable[offset:]
            if kind in "TA" and len(self.durable) < offset:
                self.durable.extend(bytes(offset - len(self.durable)))
        del self.pending[:count]

    def contents(self):
        """Returns the contents without a power failure."""
        file = File(self.durable)
        file.pending = list(self.pending)
        file.keep(len(file.pending))
        return bytes(file.durable)


def read(directory):
    """Returns the contents of all files below a directory, by relative path."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, directory)] = file.read()
    return found


class Disk:
    def __init__(self, directory):
        self.directory = directory
        self.names = {name: File(data) for name, data in read(directory).items()}
        self.durable = dict(self.names)
        self.changes, self.begun = [], {}

    def name(self, kind, path, file=None, new=None):
        self.changes.append((kind, path, file, new))
        self.apply(self.names, self.changes[-1])

    @staticmethod
    def apply(names, change):
        kind, path, file, new = change
        if kind == "link":
            names[path] = file
        elif kind == "unlink":
            names.pop(path, None)
        elif path in names:
            names[new] = names.pop(path)

    def keep_names(self, count):
        for change in self.changes[:count]:
            self.apply(self.durable, change)
        del self.changes[:count]

    def replay(self, trace):
        with open(trace, "rb") as file:
            data = file.read()
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            kind, offset, size, length, count = data[at:end].decode().split(" ")
            begin = end + 1 + int(length)
            at = begin + int(count)
            if at <= len(data):
                path = os.path.normpath(os.fsdecode(data[end + 1:begin]))
                self.step(kind, path, int(offset), int(size), data[begin:at])

    def matches(self):
        """Returns `True` if the recorded changes explain the names and the contents of all files in the directory."""
        return {name: file.contents() for name, file in self.names.items()} == read(self.directory)

    def step(self, kind, path, offset, size, data):
        file = self.names.get(path)
        if kind in "OC":
            if not file:
                self.name("link", path, File())
            elif kind == "C":
                file.pending.append(("T", 0, b""))
        elif kind == "R":
            self.name("rename", path, None, os.path.normpath(os.fsdecode(data)))
        elif kind == "U":
            self.name("unlink", path)
        elif kind == "s":
            self.begun[offset] = file, len(file.pending) if file else 0, len(self.changes)
        elif kind == "S":
            self.synced(*self.begun.pop(offset))
        elif file and kind == "W":
            file.pending.append(("W", offset, data))
        elif file:
            file.pending.append((kind, size, b""))

    def synced(self, file, writes, changes):
        if file:
            file.keep(writes)
        self.keep_names(changes)
        # Adjusts the change counts of syncs in progress, because the durable changes are now removed from the lists.
        for key, (other, count, names) in self.begun.items():
            rest = max(0, count - writes) if other is file else count
            self.begun[key] = other, rest, max(0, names - changes)

    def cut(self, random):
        """Reduces the directory to the data that survives a power failure."""
        self.keep_names(random.randint(0, len(self.changes)))
        for file in {id(file): file for file in self.durable.values()}.values():
            if random.random() < 0.5:
                file.keep(random.randint(0, len(file.pending)))
        modes = {}
        for folder, _, names in os.walk(self.directory):
            for name in names:
                path = os.path.join(folder, name)
                modes[os.path.relpath(path, self.directory)] = os.stat(path).st_mode & 0o777
        for name in os.listdir(self.directory):
            path = os.path.join(self.directory, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        for name, file in self.durable.items():
            path = os.path.join(self.directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(file.durable)
            os.chmod(path, modes.get(name, 0o600) | 0o200)
