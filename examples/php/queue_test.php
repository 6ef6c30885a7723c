<?php
// A separate queue for a PHP test suite: php queue_test.php

$program = getenv('BEANPOLE') ?: 'beanpole';
$server = proc_open(
    [$program, '-p', '0', '--ready-fd', '1', '--exit-with-parent'],
    [1 => ['pipe', 'w'], 2 => ['file', '/dev/null', 'w']],
    $pipes
);
register_shutdown_function(function () use ($server) {
    proc_terminate($server);
    proc_close($server);
});
$address = explode(' ', trim(fgets($pipes[1])))[0];

$socket = stream_socket_client("tcp://$address");
fwrite($socket, "put 0 0 60 5\r\nhello\r\nreserve\r\n");
$answer = array_map(fn () => trim(fgets($socket)), range(1, 3));
if ($answer !== ['INSERTED 1', 'RESERVED 1 5', 'hello']) {
    fwrite(STDERR, 'got ' . json_encode($answer) . "\n");
    exit(1);
}
echo "ok\n";
