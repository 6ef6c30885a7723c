# Tests Gearman::Client and Gearman::Worker (Debian package libgearman-client-perl). The worker sends
# SET_CLIENT_ID before each CAN_DO, uses GRAB_JOB, and sends WORK_EXCEPTION followed by WORK_FAIL.
use strict;
use warnings;
use Gearman::Client;
use Gearman::Task;
use Gearman::Worker;
use POSIX ":sys_wait_h";
use Time::HiRes qw(sleep time);

my ($host, $port, $key, $cert, $ca) = @ARGV;
my $server = "$host:$port";
if ($ca) {
    my %tls = (SSL_key_file => $key, SSL_cert_file => $cert, SSL_ca_file => $ca, SSL_verifycn_name => "localhost");
    $server = { host => $host, port => $port, use_ssl => 1, socket_cb => sub { @{ $_[0] }{ keys %tls } = values %tls } };
}
my $checks = 0;
my @children;
END { kill 9, @children if @children && $$ == $main::parent }
$main::parent = $$;

sub ok { my ($good, $what) = @_; $checks++; $good or die "failed: $what\n" }
sub same { my ($got, $wanted, $what) = @_; ok($got eq $wanted, "$what: got $got, wanted $wanted") }

# Starts a worker in a separate process.
sub worker {
    my (%functions) = @_;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        @children = ();
        my $worker = Gearman::Worker->new(job_servers => [$server]);
        $worker->register_function($_, @{ $functions{$_} }) for keys %functions;
        $worker->work while 1;
    }
    push @children, $pid;
    sleep 0.3;
    return $pid;
}

sub stop { my ($pid) = @_; kill 9, $pid; waitpid $pid, 0; @children = grep { $_ != $pid } @children }

my $client = Gearman::Client->new(job_servers => [$server], exceptions => 1);

my $pid = worker(
    reverse => [sub { scalar reverse $_[0]->arg }],
    steps   => [sub { $_[0]->set_status($_, 3) for 1 .. 3; "done" }],
    bad     => [sub { die "why\n" }],
    empty   => [sub { undef }],
);

# Foreground jobs, submitted one at a time and in parallel.
same(${ $client->do_task(reverse => "hello") }, "olleh", "do_task");
my $set = $client->new_task_set;
my %got;
for my $number (1 .. 50) {
    $set->add_task(reverse => "ab$number", { on_complete => sub { $got{$number} = ${ $_[0] } } });
}
$set->wait(timeout => 20);
same($got{$_}, scalar reverse("ab$_"), "task $_") for 1 .. 50;

# Status updates during a job.
my @status;
my $result = $client->do_task(Gearman::Task->new("steps", \"", { on_status => sub { push @status, "@_[0, 1]" } }));
same($$result, "done", "a task with a status");
same(join(",", @status), "1 3,2 3,3 3", "the status");

# A failure, and an exception followed by a failure. The worker's connection must stay open.
my $start = time;
for my $turn (1 .. 3) {
    my ($failed, $exception) = (0, "");
    my $tasks = $client->new_task_set;
    $tasks->add_task(Gearman::Task->new("bad", \"", {
        on_fail => sub { $failed = 1 }, on_exception => sub { $exception = $_[0] } }));
    $tasks->wait(timeout => 10);
    ok($failed || $exception, "the failure is reported");
    same(${ $client->do_task(reverse => "abc") }, "cba", "the worker still works");
}
ok(time - $start < 5, "the worker did not reconnect");

# A background job and its status.
my $handle = $client->dispatch_background("nobody", \"x", { uniq => "u" });
my $again = $client->dispatch_background("nobody", \"y", { uniq => "u" });
same($handle, $again, "the same unique id");
my $known = $client->get_status($handle);
ok($known && $known->known && !$known->running, "a background job that waits");
my $hyphen = $client->dispatch_background("nobody", \"x", { uniq => "-" });
same($client->dispatch_background("nobody", \"x", { uniq => "-" }), $hyphen, "the same payload");
ok($client->dispatch_background("nobody", \"z", { uniq => "-" }) ne $hyphen, "another payload");

# Submits a job whose first worker is killed, and lets another worker complete it.
sub inherited {
    my ($name, $victim) = @_;
    my $heir = fork // die "fork: $!";
    if (!$heir) {
        @children = ();
        sleep 0.5;
        kill 9, $victim if $victim;
        my $worker = Gearman::Worker->new(job_servers => [$server]);
        $worker->register_function($name, sub { "inherited" });
        $worker->work while 1;
    }
    push @children, $heir;
    my $answer = $client->do_task(Gearman::Task->new($name, \"x", { timeout => 10 }));
    stop($heir);
    return $answer ? $$answer : "nothing";
}

# The job of a worker that is killed, and the job of a worker that exceeds the time limit. The limit is given in
# milliseconds, but the minimum is one second.
my $victim = worker(slow => [sub { sleep 30; "never" }]);
same(inherited("slow", $victim), "inherited", "the job of a killed worker");
stop($victim);
my $stuck = worker(limited => [1, sub { sleep 30; "never" }]);
same(inherited("limited"), "inherited", "the job of a worker that took too long");
stop($stuck);
stop($pid);

print "$checks checks\n";
