<?php
// Tests tube settings with an unmodified pheanstalk. Each setting must change what a worker receives, compared
// with a tube without the setting.

error_reporting(E_ALL & ~E_DEPRECATED);
ini_set('display_errors', 'stderr');
require 'Pheanstalk/autoload.php';

use Pheanstalk\Pheanstalk;

[, $host, $port] = $argv;

function say(string $line): string
{
    global $host, $port;
    $queue = stream_socket_client("tcp://$host:$port");
    fwrite($queue, "$line\r\n");
    return fgets($queue);
}

function connect(string $tube): Pheanstalk
{
    global $host, $port;
    $client = Pheanstalk::create($host, (int) $port);
    $client->useTube($tube);
    $client->watchOnly($tube);
    return $client;
}

function one(Pheanstalk $client)
{
    return $client->reserveWithTimeout(0);
}

function count_of(string $tube, string $state): int
{
    preg_match("/current-jobs-$state: (\d+)/", stats($tube), $found);
    return (int) $found[1];
}

function stats(string $tube): string
{
    global $host, $port;
    $queue = stream_socket_client("tcp://$host:$port");
    fwrite($queue, "stats-tube $tube\r\nquit\r\n");
    return stream_get_contents($queue);
}

$checks = [
    ['try:2 dead:TUBE-dead', 'dead letters', function (string $tube) {
        $c = connect($tube);
        $c->put('x');
        $c->release(one($c));
        $c->release(one($c));
        return connect("$tube-dead")->peekBuried() !== null;
    }],
    ['try:5:60', 'back-off', function (string $tube) {
        $c = connect($tube);
        $c->put('x');
        $lost = connect($tube);
        one($lost);
        unset($lost);
        gc_collect_cycles();
        while (count_of($tube, 'reserved') > 0) {
            usleep(10000);
        }
        return one($c) === null;
    }],
    ['ttl:1', 'expiry', function (string $tube) {
        $c = connect($tube);
        $c->put('x');
        usleep(1200000);
        return one($c) === null;
    }],
    ['max:1', 'concurrency', function (string $tube) {
        $c = connect($tube);
        $c->put('x');
        $c->put('y');
        $held = one($c);
        return $held !== null && one(connect($tube)) === null;
    }],
    ['rate:1/60', 'rate', function (string $tube) {
        $c = connect($tube);
        $c->put('x');
        $c->put('y');
        $c->delete(one($c));
        return one($c) === null;
    }],
];

foreach ($checks as [$settings, $what, $happens]) {
    foreach ([true, false] as $is_set) {
        $tube = strtr($what, ' ', '-') . ($is_set ? '-set' : '-plain');
        if ($is_set && say('set-tube ' . str_replace('TUBE', $tube, "$tube $settings")) !== "SET\r\n") {
            exit("$settings is refused\n");
        }
        if ($happens($tube) !== $is_set) {
            echo "failed: $what, ", $is_set ? $settings : 'without settings', "\n";
            exit(1);
        }
    }
}
echo 2 * count($checks), " checks\n";
