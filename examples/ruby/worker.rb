# Sends mails. The server retries what fails: 5 tries, 10, 20, 40 and 80 seconds apart, then the tube mail-dead.
require_relative "client"

def deliver(address)
  raise ArgumentError, "not an address: #{address}" unless address.include?("@")
  puts "sent to #{address}"
end

$stdout.sync = true
queue = Client.new
queue.set_tube("mail", "try:5:10 dead:mail-dead")
queue.tubes.watch!("mail")
loop do
  job = queue.tubes.reserve
  begin
    deliver(job.body)
  rescue StandardError => error
    queue.fail(job, "#{error.class}: #{error.message}")
  else
    job.delete
  end
end
