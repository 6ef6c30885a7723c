<?php
// Tests pheanstalk (Debian package php-pda-pheanstalk). The library splits statistics into lines and keeps quotation
// marks, which the test therefore removes before it compares names. The library does not support reserve-job.

error_reporting(E_ALL & ~E_DEPRECATED);
ini_set('display_errors', 'stderr');
require 'Pheanstalk/autoload.php';

use Pheanstalk\Exception\DeadlineSoonException;
use Pheanstalk\Exception\JobNotFoundException;
use Pheanstalk\Exception\JobTooBigException;
use Pheanstalk\Exception\ServerBadFormatException;
use Pheanstalk\Exception\ServerException;
use Pheanstalk\Job;
use Pheanstalk\JobId;
use Pheanstalk\Pheanstalk;

[, $host, $port] = $argv;
$checks = 0;

function shown($value): string
{
    return substr(var_export($value, true), 0, 500);
}

function ok(bool $condition, string $what): void
{
    global $checks;
    $checks++;
    if (!$condition) {
        throw new Exception("failed: $what");
    }
}

function same($got, $wanted, string $what): void
{
    ok($got === $wanted, "$what: got " . shown($got) . ', wanted ' . shown($wanted));
}

function fails(string $kind, callable $call, string $what): void
{
    global $checks;
    $checks++;
    try {
        $got = $call();
    } catch (Exception $error) {
        if ($error instanceof $kind) {
            return;
        }
        throw $error;
    }
    throw new Exception("failed: $what: no $kind, got " . shown($got));
}

function within(float $low, float $high, callable $call, string $what)
{
    $start = hrtime(true);
    $result = $call();
    $seconds = (hrtime(true) - $start) / 1e9;
    ok($low <= $seconds && $seconds <= $high, "$what: took $seconds s, wanted $low to $high s");
    return $result;
}

function connect(?string $tube = null): Pheanstalk
{
    global $host, $port;
    $c = Pheanstalk::create($host, (int) $port);
    if ($tube !== null) {
        $c->useTube($tube)->watchOnly($tube);
    }
    return $c;
}

// Returns statistics as an array, without quotation marks around names.
function plain($response): array
{
    return array_map(fn ($value) => trim($value, '"'), $response->getArrayCopy());
}

function of($job): array
{
    return [$job->getId(), $job->getData()];
}

$steps = [
    'put-reserve-delete' => function (string $tube) {
        $c = connect($tube);
        $first = $c->put('hello', 7, 0, 90);
        $second = $c->put('urgent', 3);
        $third = $c->put('hello again', 7);
        ok($first->getId() < $second->getId() && $second->getId() < $third->getId(), 'ids grow');
        foreach ([$second, $first, $third] as $wanted) {
            $job = $c->reserve();
            same(of($job), of($wanted), 'order and bodies');
            $c->delete($job);
            fails(JobNotFoundException::class, fn () => $c->delete($job), 'delete twice');
            fails(JobNotFoundException::class, fn () => $c->peek($job), 'peek a deleted job');
        }
    },

    'statistics' => function (string $tube) {
        $c = connect($tube);
        $stats = plain($c->stats());
        same([$stats['max-job-size'], $stats['draining']], ['65535', 'false'], 'stats');
        foreach (['version', 'id', 'hostname', 'os', 'platform', 'pid', 'uptime'] as $key) {
            ok(isset($stats[$key]) && $stats[$key] !== '', "stats has $key");
        }
        ok(count($stats) >= 51, 'number of keys');
        $job = $c->put('x', 10, 0, 60);
        same(plain($c->statsJob($job)), [
            'id' => (string) $job->getId(), 'tube' => $tube, 'state' => 'ready', 'pri' => '10', 'age' => '0',
            'delay' => '0', 'ttr' => '60', 'time-left' => '0', 'file' => '0', 'reserves' => '0', 'timeouts' => '0',
            'releases' => '0', 'buries' => '0', 'kicks' => '0',
        ], 'stats-job');
        $stats = array_slice(plain($c->statsTube($tube)), 0, 14);
        ksort($stats);
        $wanted = [
            'name' => $tube, 'current-jobs-urgent' => '1', 'current-jobs-ready' => '1', 'current-jobs-reserved' => '0',
            'current-jobs-delayed' => '0', 'current-jobs-buried' => '0', 'total-jobs' => '1', 'current-using' => '1',
            'current-watching' => '1', 'current-waiting' => '0', 'cmd-delete' => '0', 'cmd-pause-tube' => '0',
            'pause' => '0', 'pause-time-left' => '0',
        ];
        ksort($wanted);
        same($stats, $wanted, 'stats-tube');
        $c->delete($job);
        fails(ServerException::class, fn () => $c->statsJob($job), 'stats-job of a missing job');
        fails(ServerException::class, fn () => $c->statsTube('no-such-tube'), 'stats-tube of a missing tube');
    },

    'reserve-times-out' => function (string $tube) {
        $c = connect($tube);
        same(within(0, 0.9, fn () => $c->reserveWithTimeout(0), 'no wait'), null, 'timeout 0');
        same(within(0.995, 2, fn () => $c->reserveWithTimeout(1), 'one second'), null, 'timeout 1');
        $job = $c->put('later', 0, 1);
        same(of(within(0.9, 2, fn () => $c->reserve(), 'blocked until the delay expires')), of($job), 'job');
        $c->delete($job);
    },

    'release-bury-kick' => function (string $tube) {
        $c = connect($tube);
        same([$c->peekReady(), $c->peekDelayed(), $c->peekBuried()], [null, null, null], 'peek in an empty tube');
        $job = $c->put('job', 5, 100);
        same([of($c->peekDelayed()), of($c->peek($job))], [of($job), of($job)], 'peek-delayed, peek');
        $c->kickJob($job);
        same(of($c->peekReady()), of($job), 'peek-ready');
        fails(JobNotFoundException::class, fn () => $c->kickJob($job), 'kick-job of a ready job');
        $c->release($c->reserve(), 8, 1);
        $stats = plain($c->statsJob($job));
        same([$stats['state'], $stats['pri'], $stats['delay'], $stats['releases']], ['delayed', '8', '1', '1'], 'release');
        same(of(within(0.9, 2, fn () => $c->reserveWithTimeout(5), 'delay of release')), of($job), 'released job');
        $c->bury($job, 6);
        $stats = plain($c->statsJob($job));
        same([$stats['state'], $stats['pri'], $stats['buries']], ['buried', '6', '1'], 'bury');
        same(of($c->peekBuried()), of($job), 'peek-buried');
        same([$c->kick(10), $c->kick(10)], [1, 0], 'kick');
        $c->delete($job);
        foreach (['release', 'bury', 'touch', 'kickJob'] as $method) {
            fails(JobNotFoundException::class, fn () => $c->$method($job), "$method of a missing job");
        }
    },

    'delete-in-each-state' => function (string $tube) {
        $c = connect($tube);
        $other = connect();
        $held = $c->put('held', 0);
        $c->reserve();
        fails(JobNotFoundException::class, fn () => $other->delete($held), 'held by another connection');
        $buried = $c->put('buried', 0);
        $c->bury($c->reserve());
        foreach ([$buried, $c->put('ready'), $c->put('late', 0, 100)] as $job) {
            $other->delete(new JobId($job->getId()));
        }
        $c->delete($held);
        same(plain($c->statsTube($tube))['cmd-delete'], '4', 'deletes counted');
    },

    'touch-and-deadline' => function (string $tube) {
        $c = connect($tube);
        $job = $c->put('work', 0, 0, 2);
        $c->reserve();
        $wait = fn () => fails(DeadlineSoonException::class, fn () => $c->reserve(), 'waiting near a deadline');
        within(0.9, 1.6, $wait, 'one second before the deadline');
        fails(DeadlineSoonException::class, fn () => $c->reserveWithTimeout(0), 'the deadline is still near');
        $c->touch($job);
        same($c->reserveWithTimeout(0), null, 'touch extends the deadline');
        $c->delete($job);
    },

    'tubes' => function (string $tube) {
        $c = connect();
        same([$c->listTubeUsed(true), $c->listTubesWatched(true)], ['default', ['default']], 'a new connection');
        fails(ServerException::class, fn () => $c->ignore('default'), 'the last tube stays watched');
        $c->watch($tube)->watch("{$tube}2")->ignore('default')->useTube($tube);
        $watched = $c->listTubesWatched(true);
        sort($watched);
        same([$c->listTubeUsed(true), $watched], [$tube, [$tube, "{$tube}2"]], 'used and watched');
        $c->watchOnly($tube);
        same($c->listTubesWatched(true), [$tube], 'watched only');
        ok($c->listTubes()[0] === 'default' && in_array($tube, $c->listTubes(), true), 'list-tubes');
        $id = $c->withUsedTube("{$tube}3", fn ($c) => $c->put('there'))->getId();
        same(plain($c->statsJob(new JobId($id)))['tube'], "{$tube}3", 'put into another tube');
        $c->delete(new JobId($id));
        fails(ServerBadFormatException::class, fn () => $c->useTube('-bad'), 'bad tube name');
    },

    'pause' => function (string $tube) {
        $c = connect($tube);
        $job = $c->put('held back');
        $c->pauseTube($tube, 60);
        same($c->reserveWithTimeout(0), null, 'paused');
        $stats = plain($c->statsTube($tube));
        same([$stats['pause'], $stats['cmd-pause-tube']], ['60', '1'], 'shown in stats-tube');
        $c->resumeTube($tube);
        same(of(within(0, 1, fn () => $c->reserve(), 'resumed immediately')), of($job), 'job');
        $c->delete($job);
        fails(ServerException::class, fn () => $c->pauseTube('no-such-tube', 1), 'pause of a missing tube');
    },

    'bodies' => function (string $tube) {
        $c = connect($tube);
        $every = implode('', array_map('chr', range(0, 255)));
        $bodies = ['', "\r\n", "a\r\nb\r\n", "\0", $every, substr(str_repeat($every, 256), 1), str_repeat('x', 65535)];
        foreach ($bodies as $body) {
            $job = $c->put($body);
            same(of($c->peekReady()), [$job->getId(), $body], 'peek, ' . strlen($body) . ' bytes');
            same(of($c->reserve()), [$job->getId(), $body], 'reserve, ' . strlen($body) . ' bytes');
            $c->delete($job);
        }
        fails(JobTooBigException::class, fn () => $c->put(str_repeat('x', 65536)), '65536 bytes are too many');
        same($c->listTubeUsed(true), $tube, 'the connection is usable afterwards');
    },
];

foreach ($steps as $what => $step) {
    try {
        $step("compat-$what");
    } catch (Throwable $error) {
        fwrite(STDERR, $error . "\n");
        echo "$what: ", get_class($error), ': ', $error->getMessage(), "\n";
        exit(1);
    }
}
echo "$checks checks\n";
