<?php
// Tests PHP's gearman extension, which uses libgearman (Debian package php-gearman). Clients and workers send
// OPTION_REQ exceptions, and workers use GRAB_JOB_ALL.

ini_set('display_errors', 'stderr');
[, $host, $port] = $argv;
$checks = 0;

function ok(bool $condition, string $what): void
{
    global $checks;
    $checks++;
    if (!$condition) {
        fwrite(STDERR, "failed: $what\n");
        exit(1);
    }
}

function same($got, $wanted, string $what): void
{
    ok($got === $wanted, "$what: got " . var_export($got, true) . ', wanted ' . var_export($wanted, true));
}

$children = [];
register_shutdown_function(function () use (&$children) {
    if (isset($children[getmypid()])) {
        return;
    }
    foreach (array_keys($children) as $pid) {
        posix_kill($pid, SIGKILL);
    }
});

// Starts a worker in a separate process.
function worker(array $functions): int
{
    global $children, $host, $port;
    $pid = pcntl_fork();
    if ($pid === 0) {
        $children = [getmypid() => true];
        $worker = new GearmanWorker();
        $worker->addServer($host, (int) $port);
        foreach ($functions as $name => $call) {
            $worker->addFunction($name, $call);
        }
        while (@$worker->work() || true) {
        }
    }
    $children[$pid] = true;
    usleep(300000);
    return $pid;
}

function stop(int $pid): void
{
    global $children;
    posix_kill($pid, SIGKILL);
    pcntl_waitpid($pid, $status);
    unset($children[$pid]);
}

$pid = worker([
    'reverse' => fn($job) => strrev($job->workload()),
    'steps' => function ($job) {
        foreach ([1, 2, 3] as $step) {
            $job->sendStatus($step, 3);
            $job->sendData("part$step");
        }
        $job->sendWarning('careful');
        return 'done';
    },
    'fail' => function ($job) {
        $job->sendFail();
    },
    'throw' => function ($job) {
        $job->sendException('why');
    },
    'unique' => fn($job) => $job->unique(),
]);

$client = new GearmanClient();
ok($client->addServer($host, (int) $port), 'addServer');
$client->setTimeout(10000);

same($client->doNormal('reverse', 'hello'), 'olleh', 'doNormal');
same($client->doHigh('reverse', 'hello'), 'olleh', 'doHigh');
same($client->doLow('reverse', "a\0b"), "b\0a", 'doLow with a NUL');
same($client->doNormal('reverse', str_repeat('abc', 500000)), str_repeat('cba', 500000), 'a large payload');
same($client->doNormal('unique', 'x', 'mine'), 'mine', 'the unique id');
ok($client->ping('hello'), 'ping');

$said = [];
$client->setDataCallback(function ($task) use (&$said) {
    $said[] = $task->data();
});
$client->setStatusCallback(function ($task) use (&$said) {
    $said[] = $task->taskNumerator() . '/' . $task->taskDenominator();
});
$client->setWarningCallback(function ($task) use (&$said) {
    $said[] = 'warning ' . $task->data();
});
$client->setCompleteCallback(function ($task) use (&$said) {
    $said[] = 'complete ' . $task->data();
});
$client->addTask('steps', 'x');
ok($client->runTasks(), 'a task with steps');
$steps = ['1/3', 'part1', '2/3', 'part2', '3/3', 'part3', 'warning careful', 'complete done'];
same($said, $steps, 'the messages during the job');
$client->clearCallbacks();

@$client->doNormal('fail', 'x');
same($client->returnCode(), GEARMAN_WORK_FAIL, 'a failure');
same($client->doNormal('reverse', 'abc'), 'cba', 'the worker still works');
$why = null;
$client->setExceptionCallback(function ($task) use (&$why) {
    $why = $task->data();
});
$client->addTask('throw', 'x');
@$client->runTasks();
same($why, 'why', 'an exception');
same($client->doNormal('reverse', 'abc'), 'cba', 'the worker still works after an exception');

$results = [];
$client->setCompleteCallback(function ($task) use (&$results) {
    $results[$task->unique()] = $task->data();
});
for ($number = 0; $number < 50; $number++) {
    $client->addTask('reverse', "ab$number", null, "u$number");
}
ok($client->runTasks(), 'runTasks');
same(count($results), 50, 'all tasks');
same($results['u7'], '7ba', 'their results');

$handle = $client->doBackground('nobody', 'x', 'same');
same($client->doBackground('nobody', 'y', 'same'), $handle, 'the same unique id');
same(array_slice($client->jobStatus($handle), 0, 2), [true, false], 'a background job that waits');
$status = $client->jobStatusByUniqueKey('same');
same(array_slice($status, 0, 2), [true, false], 'its status by unique id');

// The job of a worker that is killed. A new client is needed, because jobStatusByUniqueKey makes the old client
// unusable, with gearmand as well.
$client = new GearmanClient();
$client->addServer($host, (int) $port);
$client->setTimeout(10000);
$victim = worker(['slow' => function ($job) {
    sleep(30);
}]);
$handle = $client->doBackground('slow', 'x');
usleep(300000);
same(array_slice($client->jobStatus($handle), 0, 2), [true, true], 'the job runs');
stop($victim);
usleep(200000);
same(array_slice($client->jobStatus($handle), 0, 2), [true, false], 'the job waits again');
$heir = worker(['slow' => fn($job) => 'x']);
for ($turn = 0; $turn < 100 && $client->jobStatus($handle)[0]; $turn++) {
    usleep(20000);
}
same($client->jobStatus($handle)[0], false, 'another worker completed the job');
stop($heir);
stop($pid);
echo "$checks checks\n";
