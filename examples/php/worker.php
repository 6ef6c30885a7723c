<?php
// Sends mails. A job has 5 tries, 10, 20, 40 and 80 seconds apart. Then the server buries the job in mail-dead.
require __DIR__ . '/client.php';

use Pheanstalk\Exception\ConnectionException;
use Pheanstalk\Exception\JobNotFoundException;
use Pheanstalk\Exception\SocketException;

function send(string $address, callable $touch): void
{
    str_contains($address, '@') || throw new InvalidArgumentException("not an address: $address");
    $touch(); // Restarts the time to run (60 s). During long work, call this repeatedly.
    echo "sent to $address\n";
}

function work(Client $queue): void
{
    $queue->watchOnly('mail')->setTube('mail', 'try:5:10 dead:mail-dead');
    while (true) {
        $job = $queue->reserve();
        try {
            try {
                send($job->getData(), fn () => $queue->touch($job));
            } catch (Throwable $error) {
                $queue->fail($job, get_class($error) . ': ' . $error->getMessage());
                continue;
            }
            $queue->delete($job);
        } catch (JobNotFoundException) {
            fwrite(STDERR, "job {$job->getId()}: no longer reserved by this worker\n");
        }
    }
}

while (true) {
    try {
        work(Client::dial());
    } catch (ConnectionException | SocketException $error) {
        fwrite(STDERR, "{$error->getMessage()}; connecting again\n");
        sleep(1);
    }
}
