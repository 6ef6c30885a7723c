<?php
// Runs Laravel's queue and its worker with a real server: php test_queue.php

error_reporting(E_ALL & ~E_DEPRECATED);
foreach (['Pheanstalk', 'Illuminate/Queue', 'Illuminate/Events', 'Illuminate/Container', 'Illuminate/Bus'] as $package) {
    require_once "$package/autoload.php";
}
require __DIR__ . '/BeanpoleQueue.php';

use Illuminate\Bus\Dispatcher;
use Illuminate\Container\Container;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Events\Dispatcher as Events;
use Illuminate\Queue\Capsule\Manager;
use Illuminate\Queue\Worker;
use Illuminate\Queue\WorkerOptions;

function same($got, $wanted, string $what): void
{
    if ($got !== $wanted) {
        fwrite(STDERR, "$what: got " . var_export($got, true) . ', wanted ' . var_export($wanted, true) . "\n");
        exit(1);
    }
}

class Welcome
{
    public static array $done = [];
    public int $backoff = 100;

    public function __construct(public string $user) {}

    public function queueTags(): string
    {
        return "idp:welcome-{$this->user}:3600";
    }

    public function handle(): void
    {
        self::$done[] = $this->user;
        $this->user === 'nobody' && throw new RuntimeException('no address');
    }
}

class Plain
{
    public function handle(): void
    {
        Welcome::$done[] = 'plain';
    }
}

class Handler implements ExceptionHandler
{
    public function report(Throwable $e) { same($e->getMessage(), 'no address', 'exception'); }
    public function shouldReport(Throwable $e) { return true; }
    public function render($request, Throwable $e) {}
    public function renderForConsole($output, Throwable $e) {}
}

$program = getenv('BEANPOLE') ?: 'beanpole';
$server = proc_open(
    [$program, '-p', '0', '--ready-fd', '1', '--exit-with-parent'], [1 => ['pipe', 'w'], 2 => ['file', '/dev/null', 'w']], $pipes
);
register_shutdown_function(function () use ($server) {
    proc_terminate($server);
    proc_close($server);
});
[$host, $port] = explode(':', explode(' ', trim(fgets($pipes[1])))[0]);

$container = new Container();
Container::setInstance($container);
$container->instance(Illuminate\Contracts\Container\Container::class, $container);
$container->instance(Illuminate\Contracts\Events\Dispatcher::class, new Events($container));
$container->singleton(Illuminate\Contracts\Bus\Dispatcher::class, fn ($container) => new Dispatcher($container));
$capsule = new Manager($container);
$manager = $capsule->getQueueManager();
$manager->extend('beanpole', fn () => new BeanpoleConnector());
$settings = ['driver' => 'beanpole', 'host' => $host, 'port' => (int) $port, 'queue' => 'mail', 'retry_after' => 60];
$capsule->addConnection($settings);
$queue = $capsule->getConnection();
$worker = new Worker($manager, new Events($container), new Handler(), fn () => false);
$work = fn () => $worker->runNextJob('default', 'mail', new WorkerOptions('default', 0, 128, 60, 0, 3));
$stats = fn (int $id) => $queue->getPheanstalk()->statsJob(new Pheanstalk\JobId($id));

same($first = $queue->push(new Welcome('alice')), $queue->push(new Welcome('alice')), 'a second job with the same key');
same($queue->size('mail'), 1, 'size');
$work();
$work();
same(Welcome::$done, ['alice'], 'done');
same($queue->push(new Welcome('alice')), $first, 'the key outlives the job');
same($queue->size('mail'), 0, 'size');

$id = $queue->later(1000, new Welcome('bob'));
same([$stats($id)->state, $stats($id)['idempotency-key']], ['delayed', 'welcome-bob'], 'a delayed job');
$queue->push(new Plain());
$queue->pushRaw(json_encode(['job' => 'none']), 'other', ['tags' => 'ttl:100']);
same($queue->size('other'), 1, 'another tube');
$work();
same(Welcome::$done, ['alice', 'plain'], 'a job without tags');

$queue->getPheanstalk()->setTube('mail', 'try:1 dead:mail-dead');
$id = $queue->push(new Welcome('nobody'));
$work();
same([trim($stats($id)->tube, '"'), $stats($id)->state], ['mail-dead', 'buried'], 'a dead letter');
echo "ok\n";
