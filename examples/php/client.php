<?php
// pheanstalk 4 with tags, tube settings and reasons for failures. Needs, in this directory: composer require pda/pheanstalk:^4
// (Debian: apt-get install php-pda-pheanstalk)

use Pheanstalk\Command\AbstractCommand;
use Pheanstalk\Connection;
use Pheanstalk\Contract\ResponseParserInterface;
use Pheanstalk\Exception\JobNotFoundException;
use Pheanstalk\Exception\ServerException;
use Pheanstalk\Job;
use Pheanstalk\Pheanstalk;
use Pheanstalk\Response\ArrayResponse;
use Pheanstalk\SocketFactory;

(@include __DIR__ . '/vendor/autoload.php') || require 'Pheanstalk/autoload.php';

/** A command that pheanstalk does not support: a line, an optional body, and the reply that indicates success. */
class Line extends AbstractCommand implements ResponseParserInterface
{
    public function __construct(private string $line, private string $wanted, private ?string $body = null) {}

    public function getCommandLine(): string { return $this->line; }
    public function hasData(): bool { return $this->body !== null; }
    public function getData(): string { return $this->body; }

    public function parseResponse(string $line, ?string $data): ArrayResponse
    {
        [$name, $value] = [...explode(' ', $line), null];
        $error = $name === 'NOT_FOUND' ? JobNotFoundException::class : ServerException::class;
        return preg_match("/^($this->wanted)$/", $name) ? $this->createResponse($name, ['value' => $value])
            : throw new $error("$line in response to '$this->line'");
    }
}

class Client extends Pheanstalk
{
    public static function dial(): self
    {
        [$host, $port] = explode(':', getenv('BEANPOLE_SERVER') ?: '127.0.0.1:11300');
        return new self(new Connection(new SocketFactory($host, (int) $port)));
    }

    public function __construct(private Connection $line) { parent::__construct($line); }

    /** beanstalkd, which has no extensions, executes the body of a job with tags as commands. */
    public function requireExtension(string $name): void
    {
        preg_match("/\\b$name\\b/", $this->stats()['extensions'] ?? '') || throw new Exception("the server lacks the extension $name");
    }

    /** Returns the job's ID. With the tag `idp`, returns the ID of an existing job with the same key. */
    public function putTagged(string $body, string $tags, int $pri = 65536, int $delay = 0, int $ttr = 60): int
    {
        $put = sprintf('put %d %d %d %d %s', $pri, $delay, $ttr, strlen($body), $tags);
        return (int) $this->line->dispatchCommand(new Line($put, 'INSERTED', $body))->value;
    }

    public function setTube(string $tube, string $settings): void
    {
        $this->line->dispatchCommand(new Line("set-tube $tube $settings", 'SET'));
    }

    /** Reports a failed try. Returns the delay before the next try, or null after the last try. */
    public function fail(Job $job, string $reason, int $pri = 65536): ?int
    {
        $fail = sprintf('fail %d %d %d', $job->getId(), $pri, strlen($reason = substr($reason, 0, 4096)));
        return $this->line->dispatchCommand(new Line($fail, 'RELEASED|BURIED', $reason))->value;
    }
}
