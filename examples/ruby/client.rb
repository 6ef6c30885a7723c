# beaneater with tags, tube settings and reasons for failures. Needs: gem install beaneater
require "beaneater"

class Client < Beaneater
  def initialize(address = ENV.fetch("BEANPOLE_SERVER", "127.0.0.1:11300"))
    super
  end

  # beanstalkd, which has no extensions, executes the body of a job with tags as commands.
  def require_extension(name)
    found = connection.transmit("stats")[:body]["extensions"].to_s.scan(/\w+/)
    raise "the server lacks the extension #{name}" unless found.include?(name)
  end

  # Returns the job's ID. With the tag `idp`, returns the ID of an existing job with the same key.
  def put(body, tags, pri: 65536, delay: 0, ttr: 60)
    connection.transmit("put #{pri} #{delay} #{ttr} #{body.bytesize} #{tags}\r\n#{body}")[:id].to_i
  end

  def set_tube(tube, settings)
    connection.transmit("set-tube #{tube} #{settings}")
  end

  # Reports a failed try. Returns the delay before the next try, or nil after the last try.
  def fail(job, reason, pri: 65536)
    reason = reason.byteslice(0, 4096)
    connection.transmit("fail #{job.id} #{pri} #{reason.bytesize}\r\n#{reason}")[:id]&.to_i
  end
end
