# Runs ActiveJob with a real server: ruby test_adapter.rb
require "minitest/autorun"

program = ENV.fetch("BEANPOLE", "beanpole")
SERVER = IO.popen([program, "-p", "0", "--ready-fd", "1", "--exit-with-parent", err: File::NULL])
ENV["BEANPOLE_SERVER"] = SERVER.gets.split.first
Minitest.after_run do
  Process.kill("TERM", SERVER.pid)
  SERVER.close
end

require_relative "beanpole_adapter"

ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::BeanpoleAdapter.new(ttr: 4)
ActiveJob::Base.logger = Logger.new(nil)
DONE = []

class Note < ActiveJob::Base
  def perform(text)
    DONE << text
  end
end

class Welcome < ActiveJob::Base
  queue_as :mail

  def queue_tags
    "idp:welcome-#{arguments.first}:3600"
  end

  retry_on(IOError, wait: 0, attempts: 2) { |_, error| raise error }

  def perform(user)
    DONE << user
    raise IOError, "no route" if DONE.size == 1
  end
end

class Broken < ActiveJob::Base
  queue_as :mail

  def perform
    raise "broken"
  end
end

class Slow < ActiveJob::Base
  def perform
    sleep 5
  end
end

class AdapterTest < Minitest::Test
  def setup
    DONE.clear
    @client = Client.new
    @client.connection.transmit("flush-tube default")
    @client.connection.transmit("flush-tube mail")
    @worker = BeanpoleWorker.new("default", "mail")
  end

  def stats(id)
    @client.jobs.find(id).stats
  end

  def test_a_job_runs_once_and_is_deleted
    Note.perform_later("hello")
    assert @worker.work(0)
    assert_equal ["hello"], DONE
    refute @worker.work(0)
  end

  def test_the_server_keeps_a_delayed_job
    job = Note.set(wait: 1000, priority: 7).perform_later("later")
    assert_equal ["delayed", 7], [stats(job.provider_job_id).state, stats(job.provider_job_id).pri]
    assert_in_delta 1000, stats(job.provider_job_id).time_left, 5
    refute @worker.work(0)
  end

  def test_a_key_prevents_duplicates_but_not_retries
    2.times { Welcome.perform_later("alice") }
    assert @worker.work(0)
    assert @worker.work(5), "the retry"
    refute @worker.work(0)
    assert_equal %w[alice alice], DONE
  end

  def test_a_failure_has_a_reason_and_is_retried_by_the_tube
    @client.set_tube("mail", "try:5:1000 dead:mail-dead")
    id = Broken.perform_later.provider_job_id
    assert @worker.work(0)
    assert_equal ["delayed", 1, "RuntimeError: broken"], [stats(id).state, stats(id).fails, stats(id).last_error]
  ensure
    @client.connection.transmit("set-tube mail")
  end

  def test_a_job_of_another_program_fails_with_a_reason
    @client.set_tube("mail", "try:5:1000")
    ["caf\xE9", "hello", "5", '{"job_class":"caf\xE9"}'].each do |body|
      id = @client.put(body.b, "tub:mail")
      assert @worker.work(0)
      assert_equal ["delayed", 1], [stats(id).state, stats(id).fails], body
    end
  ensure
    @client.connection.transmit("set-tube mail")
  end

  def test_a_long_job_keeps_its_reservation
    before = @client.stats.job_timeouts
    Slow.perform_later
    assert @worker.work(0)
    assert_equal before, @client.stats.job_timeouts
    refute @worker.work(0)
  end
end
