// go-beanstalk with tags, tube settings and reasons for failures. Needs: go get github.com/beanstalkd/go-beanstalk
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/beanstalkd/go-beanstalk"
)

// Client adds commands to a connection. Only one goroutine may use a Client at a time, and only while no other command
// on the connection waits for a reply.
type Client struct {
	*beanstalk.Conn
	raw net.Conn
}

func dial() (Client, error) {
	address := os.Getenv("BEANPOLE_SERVER")
	if address == "" {
		address = "127.0.0.1:11300"
	}
	raw, err := net.Dial("tcp", address)
	if err != nil {
		return Client{}, err
	}
	return Client{beanstalk.NewConn(raw), raw}, nil
}

// send sends a command. If the first word of the reply is one of the wanted words, send returns the rest of the reply.
func (c Client) send(command string, wanted ...string) (string, error) {
	if _, err := fmt.Fprintf(c.raw, "%s\r\n", command); err != nil {
		return "", err
	}
	// The server sends nothing after the reply. The discarded buffer therefore never contains a part of a later reply.
	line, err := bufio.NewReader(c.raw).ReadString('\n')
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	for _, name := range wanted {
		if word == name {
			return rest, nil
		}
	}
	if word == "NOT_FOUND" {
		return "", beanstalk.ErrNotFound
	}
	return "", fmt.Errorf("%s: got %q, %v", strings.Fields(command)[0], line, err)
}

// isReply returns true if err is reply, one of the error replies that go-beanstalk declares.
func isReply(err, reply error) bool {
	var failed beanstalk.ConnError
	return err == reply || errors.As(err, &failed) && failed.Err == reply
}

// require returns an error if the server lacks an extension. beanstalkd executes the body of a job with tags as commands.
func (c Client) require(extension string) error {
	stats, err := c.Stats()
	if err == nil && !strings.Contains(" "+strings.Trim(stats["extensions"], `"`)+" ", " "+extension+" ") {
		err = errors.New("the server lacks the extension " + extension)
	}
	return err
}

// put returns the job's ID. With the tag `idp`, put returns the ID of an existing job with the same key.
func (c Client) put(body, tags string) (string, error) {
	id, err := c.send(fmt.Sprintf("put 65536 0 60 %d %s\r\n%s", len(body), tags, body), "INSERTED")
	id, _, _ = strings.Cut(id, " ")
	return id, err
}

func (c Client) setTube(tube, settings string) error {
	_, err := c.send("set-tube "+tube+" "+settings, "SET")
	return err
}

// fail reports a failed try. It returns the delay before the next try, or "" after the last try. The server
// keeps 4096 bytes of the reason.
func (c Client) fail(id uint64, reason string) (string, error) {
	return c.send(fmt.Sprintf("fail %d 65536 %d\r\n%s", id, len(reason), reason), "RELEASED", "BURIED")
}
