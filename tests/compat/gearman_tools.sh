#!/usr/bin/env bash
#
# Tests gearman and gearadmin (Debian package gearman-tools), which use libgearman. The client creates a unique
# ID for each job, and the worker uses GRAB_JOB_ALL.

set -euo pipefail

host=$1
port=$2
checks=0
workers=()

same() { # GOT WANTED WHAT
    checks=$((checks + 1))
    if [ "$1" != "$2" ]; then
        echo "$3: got '$1', wanted '$2'"
        exit 1
    fi
}

client() { gearman -h "$host" -p "$port" "$@"; }
admin() { gearadmin -h "$host" -p "$port" "$@" 2>&1 | tr -d '\r'; }
worker() {
    gearman -h "$host" -p "$port" -w "$@" &
    workers+=($!)
    sleep 0.3
}
end_worker() { # stops the most recently started worker
    kill -KILL "${workers[-1]}" 2>/dev/null || true
    wait "${workers[-1]}" 2>/dev/null || true
    unset 'workers[-1]'
}
end_all() {
    while [ ${#workers[@]} -gt 0 ]; do
        end_worker
    done
}
trap end_all EXIT

# Administrative commands.
same "$(admin --status)" . 'an empty status'
same "$(admin --create-function=made)" OK 'create function'
same "$(admin --status)" "$(printf 'made\t0\t0\t0\n.')" 'a created function'
same "$(admin --drop-function=made)" OK 'drop function'
same "$(admin --drop-function=made)" 'Error: function not found' 'drop a missing function'
same "$(admin --cancel-job=H:none:1)" 'Error: UNKNOWN_JOB' 'cancel job'
[[ $(admin --getpid) =~ ^[0-9]+$ ]] || same no yes getpid
[[ $(admin --server-version) =~ ^[0-9.]+ ]] || same no yes version

# Foreground jobs.
worker -f wc -- wc -c
same "$(printf hello | client -f wc)" 5 'a job'
same "$(head -c 1000000 /dev/zero | client -f wc)" 1000000 'a large job'
same "$(printf hello | client -I -f wc)" 5 'a job of high priority'
same "$(printf hello | client -L -f wc)" 5 'a job of low priority'
same "$(printf '1\n22\n333\n' | client -N -f wc | sort -n | tr '\n' ' ')" '1 2 3 ' 'three jobs'
same "$(admin --status)" "$(printf 'wc\t0\t0\t1\n.')" 'the status'
end_worker

# A worker whose command fails.
worker -f bad -- false
status=0
printf x | client -f bad >/dev/null 2>&1 || status=$?
[ "$status" != 0 ] || same "$status" 'not 0' 'a failure'
checks=$((checks + 1))
end_worker

# Background jobs.
for body in one two three; do
    printf %s "$body" | client -b -u "$body" -f later >/dev/null
done
printf again | client -b -u two -f later >/dev/null
same "$(admin --status | grep ^later)" "$(printf 'later\t3\t0\t0')" 'three jobs that wait'
same "$(admin --priority-status | grep ^later)" "$(printf 'later\t0\t3\t0\t0')" 'their priorities'
same "$(admin --show-jobs | grep -c ^H:)" 3 'show jobs'
same "$(admin --show-unique-jobs | sort | tr '\n' ' ')" '. one three two ' 'show unique jobs'
job=$(admin --show-jobs | grep -m 1 -o '^H:[^[:space:]]*')
same "$(admin --cancel-job="$job")" OK 'cancel a job'
worker -c 2 -f later -- cat
for ((n = 0; n < 100; n++)); do
    [ "$(admin --status | grep ^later)" = "$(printf 'later\t0\t0\t0')" ] && break
    sleep 0.05
done
same "$(admin --status | grep ^later)" "$(printf 'later\t0\t0\t0')" 'all jobs are done, and the worker has exited'

# The job of a worker that is killed.
worker -f slow -- sleep 30
victim=${workers[-1]}
(sleep 0.5; kill -KILL "$victim"; exec timeout 15 gearman -h "$host" -p "$port" -w -c 1 -f slow -- wc -c) &
heir=$!
same "$(printf four | timeout 15 gearman -h "$host" -p "$port" -f slow)" 4 'the job of a killed worker'
wait "$heir" || true

echo "$checks checks"
