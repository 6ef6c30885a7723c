<?php
// Tags for Laravel's beanstalkd driver. In a service provider:
//
//   Queue::extend('beanpole', fn () => new BeanpoleConnector());
//
// In config/queue.php, add a connection with 'driver' => 'beanpole' and the other keys of a 'beanstalkd' connection. A job
// class can add tags, which apply to every job of this class:
//
//   public function queueTags(): string
//   {
//       return "idp:welcome-{$this->user}:3600 con:smtp:2";
//   }
//
// `php artisan queue:work beanpole` runs the jobs. Laravel controls retries ($tries, $backoff). If the tube has the
// setting `try`, the server also counts releases and crashed workers as failed tries.
//
// Needs: pda/pheanstalk 4. Tested with Laravel 8.83.

use Illuminate\Queue\BeanstalkdQueue;
use Illuminate\Queue\Connectors\BeanstalkdConnector;
use Pheanstalk\Connection;
use Pheanstalk\Pheanstalk;
use Pheanstalk\SocketFactory;

require_once __DIR__ . '/../php/client.php';

class BeanpoleConnector extends BeanstalkdConnector
{
    public function connect(array $config)
    {
        return new BeanpoleQueue(
            $this->pheanstalk($config), $config['queue'], $config['retry_after'] ?? Pheanstalk::DEFAULT_TTR,
            $config['block_for'] ?? 0, $config['after_commit'] ?? null
        );
    }

    protected function pheanstalk(array $config)
    {
        return new Client(new Connection(new SocketFactory($config['host'], $config['port'] ?? 11300)));
    }
}

class BeanpoleQueue extends BeanstalkdQueue
{
    public function push($job, $data = '', $queue = null)
    {
        return $this->later(0, $job, $data, $queue);
    }

    public function later($delay, $job, $data = '', $queue = null)
    {
        $tags = is_object($job) && method_exists($job, 'queueTags') ? $job->queueTags() : '';
        $payload = $this->createPayload($job, $this->getQueue($queue), $data);
        return $this->enqueueUsing($job, $payload, $queue, $delay, fn ($payload, $queue, $delay) => $this->put(
            $payload, $queue, $this->secondsUntil($delay), $tags
        ));
    }

    public function pushRaw($payload, $queue = null, array $options = [])
    {
        return $this->put($payload, $queue, 0, $options['tags'] ?? '');
    }

    protected function put(string $payload, ?string $queue, int $delay, string $tags): int
    {
        $tags = rtrim("tub:{$this->getQueue($queue)} $tags");
        return $this->pheanstalk->putTagged($payload, $tags, Pheanstalk::DEFAULT_PRIORITY, $delay, $this->timeToRun);
    }
}
