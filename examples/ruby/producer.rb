# Puts a mail into the queue, once per key: ruby producer.rb welcome-7 alice@example.org
require_relative "client"

key, address = ARGV
queue = Client.new
queue.require_extension("idp")
puts queue.put(address, "tub:mail idp:#{key}:3600")
