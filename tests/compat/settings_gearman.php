<?php
// Tests tube settings with an unmodified gearman extension of PHP. Each setting must change what a worker
// receives, compared with a function without the setting. The script changes the settings over the beanstalk
// protocol at COMPAT_QUEUE.

ini_set('display_errors', 'stderr');
[, $host, $port] = $argv;
$queue = getenv('COMPAT_QUEUE');

function say(string $lines): string
{
    global $host, $queue;
    $stream = stream_socket_client("tcp://$host:$queue");
    fwrite($stream, "$lines\r\nquit\r\n");
    return stream_get_contents($stream);
}

/** Creates a worker that grabs at most one job per call. The callback returns true if the job is complete. */
function worker(string $function, callable $does): GearmanWorker
{
    global $host, $port;
    $worker = new GearmanWorker();
    $worker->addServer($host, (int) $port);
    $worker->addOptions(GEARMAN_WORKER_NON_BLOCKING);
    $worker->addFunction($function, $does);
    return $worker;
}

/** Returns the number of jobs that a worker receives within a short time. */
function taken(string $function, callable $does): int
{
    $count = 0;
    $worker = worker($function, function ($job) use (&$count, $does) {
        $count++;
        return $does($job);
    });
    $end = microtime(true) + 1.5;
    while (microtime(true) < $end) {
        @$worker->work();
        usleep(5000);
    }
    return $count;
}

function submit(string $function, int $count): void
{
    global $host, $port;
    $client = new GearmanClient();
    $client->addServer($host, (int) $port);
    for ($number = 0; $number < $count; $number++) {
        $client->doBackground($function, "job $number");
    }
}

$fails = function ($job) {
    $job->sendFail();
    return false;
};
$works = fn($job) => 'done';
$checks = [
    ['try:3 dead:TUBE-dead', 'dead letters', function (string $tube) use ($fails) {
        submit($tube, 1);
        $count = taken($tube, $fails);
        return $count === 3 && preg_match('/^FOUND/m', say("use $tube-dead\r\npeek-buried")) === 1;
    }],
    ['try:5:60', 'back-off', function (string $tube) use ($fails) {
        submit($tube, 1);
        return taken($tube, $fails) === 1 && preg_match('/^FOUND/m', say("use $tube\r\npeek-delayed")) === 1;
    }],
    ['ttl:1', 'expiry', function (string $tube) use ($works) {
        submit($tube, 1);
        usleep(1200000);
        return taken($tube, $works) === 0;
    }],
    ['max:1', 'concurrency', function (string $tube) use ($works) {
        submit($tube, 2);
        say("watch $tube\r\nreserve-with-timeout 0");
        $held = stream_socket_client('tcp://' . $GLOBALS['host'] . ':' . $GLOBALS['queue']);
        fwrite($held, "watch $tube\r\nreserve-with-timeout 0\r\n");
        fgets($held);
        fgets($held);
        return taken($tube, $works) === 0;
    }],
    ['rate:1/60', 'rate', function (string $tube) use ($works) {
        submit($tube, 2);
        return taken($tube, $works) === 1;
    }],
];

foreach ($checks as [$settings, $what, $happens]) {
    foreach ([true, false] as $is_set) {
        $tube = strtr($what, ' ', '-') . ($is_set ? '-set' : '-plain');
        if ($is_set && strpos(say('set-tube ' . str_replace('TUBE', $tube, "$tube $settings")), 'SET') !== 0) {
            exit("$settings is refused\n");
        }
        if ($happens($tube) !== $is_set) {
            fwrite(STDERR, "failed: $what, " . ($is_set ? $settings : 'without settings') . "\n");
            exit(1);
        }
    }
}
echo 2 * count($checks), " checks\n";
