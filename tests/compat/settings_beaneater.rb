# Tests tube settings with an unmodified beaneater. Each setting must change what a worker receives, compared
# with a tube without the setting.

require 'beaneater'
require 'socket'

HOST, PORT = ARGV

def say(line)
  TCPSocket.open(HOST, PORT) do |queue|
    queue.write("#{line}\r\n")
    queue.gets
  end
end

def connect(name)
  c = Beaneater.new("#{HOST}:#{PORT}")
  c.tubes.watch!(name)
  [c, c.tubes[name]]
end

def one(connection)
  connection.tubes.reserve(0)
rescue Beaneater::TimedOutError
  nil
end

CHECKS = {
  ['try:2 dead:TUBE-dead', 'dead letters'] => lambda do |name|
    c, tube = connect(name)
    tube.put('x')
    2.times { one(c).release(delay: 0) }
    !c.tubes["#{name}-dead"].peek(:buried).nil?
  end,
  ['try:5:60', 'back-off'] => lambda do |name|
    c, tube = connect(name)
    tube.put('x')
    lost, = connect(name)
    one(lost)
    lost.close
    sleep 0.01 while tube.stats.current_jobs_reserved > 0
    one(c).nil?
  end,
  ['ttl:1', 'expiry'] => lambda do |name|
    c, tube = connect(name)
    tube.put('x')
    sleep 1.2
    one(c).nil?
  end,
  ['max:1', 'concurrency'] => lambda do |name|
    c, tube = connect(name)
    2.times { tube.put('x') }
    one(c)
    other, = connect(name)
    one(other).nil?
  end,
  ['rate:1/60', 'rate'] => lambda do |name|
    c, tube = connect(name)
    2.times { tube.put('x') }
    one(c).delete
    one(c).nil?
  end
}

CHECKS.each do |(settings, what), happens|
  [true, false].each do |is_set|
    name = "#{what.tr(' ', '-')}-#{is_set}"
    if is_set
      answer = say("set-tube #{name} #{settings}".gsub('TUBE', name))
      raise "#{settings}: #{answer}" unless answer == "SET\r\n"
    end
    raise "#{what}, #{is_set ? settings : 'without settings'}" unless happens.call(name) == is_set
  end
end
puts "#{2 * CHECKS.size} checks"
