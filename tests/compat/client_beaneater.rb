# Tests beaneater (Debian package ruby-beaneater). The library sends stats-job before release and bury, and parses
# statistics with Ruby's YAML parser.

require 'beaneater'

HOST, PORT = ARGV
$checks = 0

def ok(condition, what)
  $checks += 1
  raise "failed: #{what}" unless condition
end

def same(got, wanted, what)
  ok(got == wanted, "#{what}: got #{got.inspect[0, 500]}, wanted #{wanted.inspect[0, 500]}")
end

def fails(kind, what)
  $checks += 1
  begin
    got = yield
  rescue kind
    return
  end
  raise "failed: #{what}: no #{kind}, got #{got.inspect[0, 500]}"
end

def within(low, high, what)
  start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  result = yield
  seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
  ok(seconds.between?(low, high), "#{what}: took #{seconds} s, wanted #{low} to #{high} s")
  result
end

def connect(tube = nil)
  c = Beaneater.new("#{HOST}:#{PORT}")
  c.tubes.watch!(tube) if tube
  c
end

NotFound = Beaneater::NotFoundError

STEPS = {
  'put, reserve, delete' => lambda do |name|
    c = connect(name)
    tube = c.tubes[name]
    first = tube.put('hello', pri: 7, delay: 0, ttr: 90)
    same(first[:status], 'INSERTED', 'reply to put')
    second = tube.put('urgent', pri: 3)
    third = tube.put('hello again', pri: 7)
    ok(first[:id].to_i < second[:id].to_i && second[:id].to_i < third[:id].to_i, 'ids grow')
    [[second, 'urgent'], [first, 'hello'], [third, 'hello again']].each do |put, body|
      job = c.tubes.reserve(0)
      same([job.id, job.body], [put[:id], body], 'order and bodies')
      ok(job.reserved?, 'reserved')
      same(job.delete[:status], 'DELETED', 'delete')
      fails(NotFound, 'delete twice') { job.delete }
      ok(!job.exists?, 'gone')
      ok(c.jobs.find(job.id).nil?, 'peek a deleted job')
    end
    c.close
  end,

  'statistics' => lambda do |name|
    c = connect(name)
    tube = c.tubes[name]
    same(c.stats.max_job_size, 65_535, 'max-job-size')
    same(c.stats.draining, false, 'draining')
    ok(c.stats.version.is_a?(String), 'version')
    ok(c.stats.hostname.is_a?(String), 'hostname')
    ok(c.stats.rusage_utime.is_a?(Float), 'rusage-utime')
    same(c.stats.keys.length >= 51, true, 'number of keys')
    job = c.jobs.find(tube.put('x', pri: 10, ttr: 60)[:id])
    same(job.stats.to_h, {
      'id' => job.id.to_i, 'tube' => name, 'state' => 'ready', 'pri' => 10, 'age' => 0, 'delay' => 0, 'ttr' => 60,
      'time_left' => 0, 'file' => 0, 'reserves' => 0, 'timeouts' => 0, 'releases' => 0, 'buries' => 0, 'kicks' => 0
    }, 'stats-job')
    same(tube.stats.to_h.first(14).to_h, {
      'name' => name, 'current_jobs_urgent' => 1, 'current_jobs_ready' => 1, 'current_jobs_reserved' => 0,
      'current_jobs_delayed' => 0, 'current_jobs_buried' => 0, 'total_jobs' => 1, 'current_using' => 1,
      'current_watching' => 1, 'current_waiting' => 0, 'cmd_delete' => 0, 'cmd_pause_tube' => 0, 'pause' => 0,
      'pause_time_left' => 0
    }, 'stats-tube')
    same([job.tube, job.ttr, job.pri, job.delay], [name, 60, 10, 0], 'fields')
    job.delete
    fails(NotFound, 'stats-job of a missing job') { job.stats }
    fails(NotFound, 'stats-tube of a missing tube') { c.tubes['no-such-tube'].stats }
    c.close
  end,

  'reserve times out' => lambda do |name|
    c = connect(name)
    other = connect
    within(0, 0.9, 'no wait') { fails(Beaneater::TimedOutError, 'timeout 0') { c.tubes.reserve(0) } }
    within(0.995, 2, 'one second') { fails(Beaneater::TimedOutError, 'timeout 1') { c.tubes.reserve(1) } }
    later = Thread.new { sleep 0.3; other.tubes[name].put('wake up')[:id] }
    job = within(0.28, 1.3, 'woken by a put') { c.tubes.reserve }
    same([job.id, job.body], [later.value, 'wake up'], 'job')
    job.delete
    [c, other].each(&:close)
  end,

  'release, bury, kick' => lambda do |name|
    c = connect(name)
    tube = c.tubes[name]
    %i[ready delayed buried].each { |state| ok(tube.peek(state).nil?, "nothing #{state}") }
    id = tube.put('job', pri: 5, delay: 100)[:id]
    same([tube.peek(:delayed).id, tube.peek(:delayed).body], [id, 'job'], 'peek-delayed')
    same(c.jobs[id].body, 'job', 'peek')
    same(c.jobs[id].kick[:status], 'KICKED', 'kick-job')
    same(tube.peek(:ready).id, id, 'peek-ready')
    fails(NotFound, 'kick-job of a ready job') { c.jobs[id].kick }
    job = c.tubes.reserve(0)
    job.release(pri: 8, delay: 1)
    same([job.stats.state, job.stats.pri, job.stats.delay, job.stats.releases], ['delayed', 8, 1, 1], 'release')
    job = within(0.9, 2, 'delay of release') { c.tubes.reserve(5) }
    same([job.id, job.pri], [id, 8], 'released job')
    job.bury
    same([job.stats.state, job.stats.pri, job.stats.buries], ['buried', 8, 1], 'bury keeps the priority read before')
    same(tube.peek(:buried).id, id, 'peek-buried')
    same(tube.kick(10), { status: 'KICKED', id: '1' }, 'kick')
    same(tube.kick(10), { status: 'KICKED', id: '0' }, 'nothing left to kick')
    job = c.tubes.reserve(0)
    same(job.touch[:status], 'TOUCHED', 'touch')
    job.delete
    fails(NotFound, 'touch of a missing job') { c.connection.transmit("touch #{id}") }
    c.close
  end,

  'delete in each state' => lambda do |name|
    c = connect(name)
    other = connect
    tube = c.tubes[name]
    held = tube.put('held', pri: 0)[:id]
    c.tubes.reserve(0)
    fails(NotFound, 'held by another connection') { other.jobs[held].delete }
    tube.put('buried', pri: 0)
    c.tubes.reserve(0).bury
    tube.put('ready')
    tube.put('late', delay: 100)
    %i[buried ready delayed].each { |state| same(other.tubes[name].peek(state).delete[:status], 'DELETED', "#{state}") }
    c.jobs[held].delete
    same(tube.stats.cmd_delete, 4, 'deletes counted')
    [c, other].each(&:close)
  end,

  'clear' => lambda do |name|
    c = connect
    tube = c.tubes[name]
    5.times { |n| tube.put("n#{n}", delay: n.odd? ? 100 : 0) }
    tube.clear
    same([tube.stats.current_jobs_ready, tube.stats.current_jobs_delayed], [0, 0], 'cleared')
    c.close
  end,

  'deadline soon' => lambda do |name|
    c = connect(name)
    c.tubes[name].put('work', ttr: 2)
    job = c.tubes.reserve(0)
    within(0.9, 1.6, 'one second before the deadline') do
      fails(Beaneater::DeadlineSoonError, 'waiting near a deadline') { c.tubes.reserve }
    end
    job.touch
    fails(Beaneater::TimedOutError, 'touch extends the deadline') { c.tubes.reserve(0) }
    job.delete
    c.close
  end,

  'tubes' => lambda do |name|
    c = connect
    same([c.tubes.used.name, c.tubes.watched.map(&:name)], ['default', ['default']], 'a new connection')
    fails(Beaneater::NotIgnoredError, 'the last tube stays watched') { c.tubes.ignore('default') }
    c.tubes.watch(name, "#{name}2")
    same(c.tubes.watched.map(&:name).sort, [name, "#{name}2", 'default'].sort, 'watched')
    c.tubes.watch!(name)
    same(c.tubes.watched.map(&:name), [name], 'watched only')
    c.tubes.use(name)
    same(c.tubes.used.name, name, 'used')
    ok(c.tubes.all.map(&:name).include?(name), 'listed')
    same(c.tubes.all.first.name, 'default', 'default comes first')
    fails(Beaneater::InvalidTubeName, 'bad tube name') { c.tubes.use('-bad') }
    c.close
  end,

  'pause' => lambda do |name|
    c = connect(name)
    other = connect
    tube = c.tubes[name]
    tube.put('held back')
    same(tube.pause(60)[:status], 'PAUSED', 'pause')
    fails(Beaneater::TimedOutError, 'paused') { c.tubes.reserve(0) }
    same([tube.stats.pause, tube.stats.cmd_pause_tube], [60, 1], 'shown in stats-tube')
    later = Thread.new { sleep 0.3; other.tubes[name].pause(0) }
    job = within(0.28, 1.5, 'resumed immediately') { c.tubes.reserve(10) }
    later.join
    job.delete
    fails(NotFound, 'pause of a missing tube') { c.tubes['no-such-tube'].pause(1) }
    [c, other].each(&:close)
  end,

  'bodies' => lambda do |name|
    c = connect(name)
    tube = c.tubes[name]
    every = (0..255).to_a.pack('C*')
    ['', "\r\n", "a\r\nb\r\n", "\0", every, (every * 256)[1..], 'x' * 65_535].each do |body|
      body = body.b
      id = tube.put(body)[:id]
      same(tube.peek(:ready).body.b, body, "peek, #{body.bytesize} bytes")
      job = c.tubes.reserve(0)
      same([job.id, job.body.b], [id, body], "reserve, #{body.bytesize} bytes")
      job.delete
    end
    fails(Beaneater::JobTooBigError, '65536 bytes are too many') { tube.put('x' * 65_536) }
    same(c.tubes.used.name, name, 'the connection is usable afterwards')
    c.close
  end,

  'processing loop' => lambda do |name|
    c = connect
    tube = c.tubes[name]
    %w[good bad flaky good].each { |body| tube.put(body) }
    tube.put('stop', delay: 4)
    seen = []
    c.jobs.register(name, retry_on: [EncodingError], max_retries: 2) do |job|
      seen << job.body
      raise 'refused' if job.body == 'bad'
      raise EncodingError if job.body == 'flaky'
      c.jobs.stop! if job.body == 'stop'
    end
    c.jobs.process!(release_delay: 1, reserve_timeout: 10)
    same(seen.tally, { 'good' => 2, 'bad' => 1, 'flaky' => 3, 'stop' => 1 }, 'calls')
    same(tube.stats.current_jobs_buried, 2, 'failed jobs are buried')
    tube.clear
    c.close
  end
}

STEPS.each do |what, step|
  begin
    step.call("compat-#{what.gsub(/[^a-z]+/, '-')}")
  rescue StandardError => e
    warn e.full_message(highlight: false)
    puts "#{what}: #{e.class}: #{e.message}"
    exit 1
  end
end
puts "#{$checks} checks"
