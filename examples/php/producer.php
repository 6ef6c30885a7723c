<?php
// Puts a mail into the queue, once per key: php producer.php welcome-7 alice@example.org
require __DIR__ . '/client.php';

[, $key, $address] = $argv;
$queue = Client::dial();
$queue->requireExtension('idp');
echo $queue->putTagged($address, "tub:mail idp:$key:3600"), "\n";
