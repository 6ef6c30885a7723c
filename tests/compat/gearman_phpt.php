<?php
// Runs one .phpt file of PHP's Gearman extension. Executes the section FILE unless the section SKIPIF prints "skip",
// and compares the output with EXPECT or EXPECTF.
//
//   php gearman_phpt.php FILE
//
// The exit status is 0 if the test passed or was skipped, and 1 otherwise. This script replaces PHP's own test runner,
// which Debian's packages do not contain.

$text = file_get_contents($argv[1]);
$sections = [];
foreach (preg_split('/^--([A-Z_]+)--\R/m', $text, -1, PREG_SPLIT_DELIM_CAPTURE) as $at => $part) {
    if ($at % 2 == 1) {
        $name = $part;
    } elseif ($at > 0) {
        $sections[$name] = $part;
    }
}

function run(string $code): string
{
    $file = getcwd() . '/beanpole-' . getmypid() . '.php';
    file_put_contents($file, $code);
    exec('php -d display_errors=1 -d log_errors=0 ' . escapeshellarg($file) . ' 2>&1 </dev/null', $lines);
    unlink($file);
    return trim(implode("\n", $lines));
}

if (isset($sections['SKIPIF']) && stripos(run($sections['SKIPIF']), 'skip') === 0) {
    echo "skipped\n";
    exit(0);
}
$output = run($sections['FILE'] ?? $sections['FILEEOF']);
if (isset($sections['CLEAN'])) {
    run($sections['CLEAN']);
}
$plain = fn (string $wanted) => preg_quote(trim(str_replace("\r\n", "\n", $wanted)), '~');
if (isset($sections['EXPECT'])) {
    $pattern = $plain($sections['EXPECT']);
} else {
    $signs = [
        '%%' => '%', '%d' => '\d+', '%i' => '[+-]?\d+', '%s' => '[^\r\n]+', '%S' => '[^\r\n]*', '%a' => '.+', '%A' => '.*',
        '%w' => '\s*', '%c' => '.', '%x' => '[0-9a-fA-F]+', '%f' => '[+-]?\.?\d+\.?\d*(?:[Ee][+-]?\d+)?', '%e' => '/',
    ];
    $pattern = strtr($plain($sections['EXPECTF'] ?? ''), $signs);
}
if (preg_match("~^$pattern$~s", str_replace("\r\n", "\n", $output))) {
    exit(0);
}
echo "wanted:\n", $sections['EXPECT'] ?? $sections['EXPECTF'] ?? '', "\ngot:\n$output\n";
exit(1);
