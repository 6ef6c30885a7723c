# A separate queue for a Ruby test suite: ruby queue_test.rb
require "socket"

program = ENV.fetch("BEANPOLE", "beanpole")
server = IO.popen([program, "-p", "0", "--ready-fd", "1", "--exit-with-parent", err: File::NULL])
at_exit do
  Process.kill("TERM", server.pid)
  server.close
end
host, port = server.gets.split.first.split(":")

TCPSocket.open(host, port.to_i) do |socket|
  socket.write("put 0 0 60 5\r\nhello\r\nreserve\r\n")
  answer = Array.new(3) { socket.gets.chomp }
  raise "got #{answer}" unless answer == ["INSERTED 1", "RESERVED 1 5", "hello"]
end
puts "ok"
