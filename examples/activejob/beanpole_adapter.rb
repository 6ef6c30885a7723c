# An ActiveJob queue adapter for beanpole, and its worker:
#
#   require "beanpole_adapter"
#   config.active_job.queue_adapter = ActiveJob::QueueAdapters::BeanpoleAdapter.new
#
#   BeanpoleWorker.new("default", "mail").run     # in one or more separate processes
#
# An ActiveJob queue is a tube. If a job raises an exception that neither retry_on nor discard_on handles, the worker reports
# a failed try with the exception as the reason. The settings of the tube, such as try:5:10 dead:mail-dead, then determine
# the retries. While a job runs, the worker touches it, so a job can take as long as it needs. A class can add tags to its
# jobs:
#
#   def queue_tags
#     "idp:welcome-#{arguments.first}:3600 con:smtp:2"
#   end
#
# Needs: gem install activejob beaneater. Tested with ActiveJob 6.1 and beaneater 1.1.
require "active_job"
require "json"
require_relative "../ruby/client"

module ActiveJob
  module QueueAdapters
    class BeanpoleAdapter
      def initialize(ttr: 60)
        @ttr = ttr
      end

      def enqueue(job)
        put(job, 0)
      end

      def enqueue_at(job, timestamp)
        put(job, [(timestamp - Time.now.to_f).ceil, 0].max)
      end

      # Newer versions of Rails call this method.
      def enqueue_after_transaction_commit?
        true
      end

      private

      def put(job, delay)
        tags = job.respond_to?(:queue_tags) ? job.queue_tags : ""
        # A retry gets no `idp` tag, because the server would treat the retry as a duplicate of the original job.
        tags = tags.split.reject { |tag| tag.start_with?("idp:") }.join(" ") if job.executions > 0
        body = JSON.generate(job.serialize)
        options = { pri: job.priority || 65536, delay: delay, ttr: @ttr }
        job.provider_job_id = client.put(body, "tub:#{job.queue_name} #{tags}".strip, **options)
      end

      # Connections must not be shared between threads.
      def client
        Thread.current[:beanpole_client] ||= ::Client.new
      end
    end
  end
end

class BeanpoleWorker
  def initialize(*tubes)
    @client = Client.new
    @client.tubes.watch!(*tubes)
  end

  def run
    loop { work }
  end

  # Runs the next job. Waits for the job, at most `seconds` if given. Returns false if no job arrived.
  def work(seconds = nil)
    job = @client.tubes.reserve(seconds)
    begin
      touching(job) { ActiveJob::Base.execute(JSON.parse(job.body)) }
    rescue Exception => error # rubocop:disable Lint/RescueException
      @client.fail(job, "#{error.class}: #{error.message}")
      raise unless error.is_a?(StandardError)
    else
      job.delete
    end
    true
  rescue Beaneater::TimedOutError
    false
  end

  private

  # Touches the job until the block ends. The thread must not be killed, because it may be in the middle of a command.
  def touching(job)
    pause = job.ttr / 2.0
    lock, changed, over = Mutex.new, ConditionVariable.new, false
    toucher = Thread.new do
      lock.synchronize do
        changed.wait(lock, pause) unless over
        until over
          job.touch
          changed.wait(lock, pause)
        end
      end
    end
    yield
  ensure
    lock&.synchronize do
      over = true
      changed.signal
    end
    toucher&.join
  end
end
