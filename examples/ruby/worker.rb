# Sends mails. A job has 5 tries, 10, 20, 40 and 80 seconds apart. Then the server buries the job in mail-dead.
require_relative "client"

def deliver(job)
  raise ArgumentError, "not an address: #{job.body}" unless job.body.include?("@")
  job.touch # Restarts the time to run (60 s). During long work, call this repeatedly.
  puts "sent to #{job.body}"
end

def work(queue)
  queue.set_tube("mail", "try:5:10 dead:mail-dead")
  queue.tubes.watch!("mail")
  loop do
    job = queue.tubes.reserve
    begin
      deliver(job)
    rescue StandardError => error
      queue.fail(job, "#{error.class}: #{error.message}")
    else
      job.delete
    end
  rescue Beaneater::NotFoundError
    warn "job #{job.id}: no longer reserved by this worker"
  end
end

$stdout.sync = true
begin
  work(Client.new)
rescue Beaneater::NotConnected, SystemCallError, IOError => error
  warn "#{error.message}; connecting again"
  sleep 1
  retry
end
