// The checks for go-workq. The settings are changed over the beanstalk protocol at COMPAT_QUEUE.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/iamduo/go-workq"
)

var queue = net.JoinHostPort(os.Args[1], os.Getenv("COMPAT_QUEUE"))
var added int

func connect() *workq.Client {
	c, err := workq.Connect(address())
	succeeds(err)
	return c
}

func add(c *workq.Client, name string, count, timeToLive int) {
	for i := 0; i < count; i++ {
		added++
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", added)
		succeeds(c.Add(&workq.BgJob{ID: id, Name: name, TTR: 60_000, TTL: timeToLive, Payload: []byte("x")}))
	}
}

// lease returns a job, or nil if the queue has no job for a worker.
func lease(c *workq.Client, name string) *workq.LeasedJob {
	job, err := c.Lease([]string{name}, 0)
	var reply *workq.ResponseError
	if !errors.As(err, &reply) || reply.Code() != "TIMEOUT" {
		succeeds(err)
	}
	return job
}

func mustLease(c *workq.Client, name string) string {
	job := lease(c, name)
	if job == nil {
		panic("no job")
	}
	return job.ID
}

// has returns true if the tube has a job for the given peek command.
func has(tube, peek string) bool {
	return strings.Contains(say(queue, "use "+tube+"\r\n"+peek), "\nFOUND ")
}

func deadLetters(tube string) bool {
	c := connect()
	defer c.Close()
	add(c, tube, 1, 600_000)
	for i := 0; i < 2; i++ {
		if job := lease(c, tube); job != nil {
			succeeds(c.Fail(job.ID, []byte("no host")))
		}
	}
	return has(tube+"-dead", "peek-buried")
}

func backOff(tube string) bool {
	c := connect()
	defer c.Close()
	add(c, tube, 1, 600_000)
	succeeds(c.Fail(mustLease(c, tube), nil))
	return has(tube, "peek-delayed")
}

// expires returns true if a job with this time to live expires. The tube's setting is one second, but the job's own
// time to live takes precedence.
func expires(timeToLive int) bool {
	tube := fmt.Sprintf("expiry-%d", timeToLive)
	if reply := say(queue, "set-tube "+tube+" ttl:1"); reply != "SET\r\n" {
		panic(reply)
	}
	c := connect()
	defer c.Close()
	add(c, tube, 1, timeToLive)
	time.Sleep(1200 * time.Millisecond)
	return lease(c, tube) == nil
}

func concurrency(tube string) bool {
	c, other := connect(), connect()
	defer c.Close()
	defer other.Close()
	add(c, tube, 2, 600_000)
	mustLease(c, tube)
	return lease(other, tube) == nil
}

func rate(tube string) bool {
	c := connect()
	defer c.Close()
	add(c, tube, 2, 600_000)
	succeeds(c.Complete(mustLease(c, tube), nil))
	return lease(c, tube) == nil
}

func main() {
	if !expires(1000) || expires(600_000) {
		panic("a job's own time to live does not take precedence")
	}
	test(queue, []check{
		{"try:2 dead:TUBE-dead", "dead letters", deadLetters},
		{"try:5:60", "back-off", backOff},
		{"max:1", "concurrency", concurrency},
		{"rate:1/60", "rate", rate},
	})
}
