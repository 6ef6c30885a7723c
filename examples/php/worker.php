<?php
// Sends mails. The server retries what fails: 5 tries, 10, 20, 40 and 80 seconds apart, then the tube mail-dead.
require 'Pheanstalk/autoload.php'; // with composer: vendor/autoload.php
require __DIR__ . '/client.php';

function send(string $address): void
{
    str_contains($address, '@') || throw new InvalidArgumentException("not an address: $address");
    echo "sent to $address\n";
}

$queue = Client::dial()->watchOnly('mail');
$queue->setTube('mail', 'try:5:10 dead:mail-dead');
while (true) {
    $job = $queue->reserve();
    try {
        send($job->getData());
    } catch (Throwable $error) {
        $queue->fail($job, get_class($error) . ': ' . $error->getMessage());
        continue;
    }
    $queue->delete($job);
}
