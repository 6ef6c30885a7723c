// Tests tube settings with an unmodified client for Go. Each setting must change what a worker receives, compared with
// a tube without the setting. Another file contains the checks for a particular client.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
)

type check struct {
	settings, what string
	happens        func(tube string) bool
}

// say sends beanstalk commands to the address in queue, and returns all replies.
func say(queue, commands string) string {
	c, err := net.Dial("tcp", queue)
	succeeds(err)
	defer c.Close()
	fmt.Fprintf(c, "%s\r\nquit\r\n", commands)
	replies, err := io.ReadAll(c)
	succeeds(err)
	return string(replies)
}

func succeeds(err error) {
	if err != nil {
		log.Panic(err)
	}
}

// address returns the address of the client's protocol, which the arguments contain.
func address() string {
	return net.JoinHostPort(os.Args[1], os.Args[2])
}

// test runs each check with and without its settings, which it sets at the beanstalk address in queue.
func test(queue string, checks []check) {
	for _, c := range checks {
		for _, isSet := range []bool{true, false} {
			tube := fmt.Sprintf("%s-%t", strings.ReplaceAll(c.what, " ", "-"), isSet)
			words := "without settings"
			if isSet {
				words = strings.ReplaceAll(c.settings, "TUBE", tube)
				if reply := say(queue, "set-tube "+tube+" "+words); reply != "SET\r\n" {
					log.Fatalf("%s: %q", words, reply)
				}
			}
			if c.happens(tube) != isSet {
				log.Fatalf("failed: %s, %s", c.what, words)
			}
		}
	}
	fmt.Println(2*len(checks), "checks")
}
