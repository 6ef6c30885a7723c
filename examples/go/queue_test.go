// A separate queue for a Go test suite: go test queue_test.go
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// start starts a queue that runs until the test ends, and returns its address. --exit-with-parent stops the queue if
// the test process dies. Pdeathsig would not work: Go starts programs from threads, which can exit before the process
// exits.
func start(t *testing.T) string {
	program := os.Getenv("BEANPOLE")
	if program == "" {
		program = "beanpole"
	}
	server := exec.Command(program, "-p", "0", "--ready-fd", "1", "--exit-with-parent")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGTERM)
		server.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(line)[0]
}

func TestAJobIsDelivered(t *testing.T) {
	connection, err := net.Dial("tcp", start(t))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprint(connection, "put 0 0 60 5\r\nhello\r\nreserve\r\n")
	reader := bufio.NewReader(connection)
	for _, wanted := range []string{"INSERTED 1", "RESERVED 1 5", "hello"} {
		line, err := reader.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != wanted {
			t.Fatalf("got %q, %v; wanted %q", line, err, wanted)
		}
	}
}
