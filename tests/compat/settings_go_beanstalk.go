// The checks for go-beanstalk.
package main

import (
	"errors"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// A client uses and watches one tube.
type client struct {
	*beanstalk.Conn
	tube  *beanstalk.Tube
	tubes *beanstalk.TubeSet
}

func connect(tube string) client {
	c, err := beanstalk.Dial("tcp", address())
	succeeds(err)
	return client{c, beanstalk.NewTube(c, tube), beanstalk.NewTubeSet(c, tube)}
}

func (c client) put(count int) {
	for i := 0; i < count; i++ {
		_, err := c.tube.Put([]byte("x"), 0, 0, time.Minute)
		succeeds(err)
	}
}

// gets returns true if err is nil, and false if err is reply.
func gets(err, reply error) bool {
	if !errors.Is(err, reply) {
		succeeds(err)
	}
	return err == nil
}

// one returns the ID of a job, or false if the tube has no job for a worker.
func (c client) one() (uint64, bool) {
	id, _, err := c.tubes.Reserve(0)
	return id, gets(err, beanstalk.ErrTimeout)
}

func (c client) mustGet() uint64 {
	id, ok := c.one()
	if !ok {
		panic("no job")
	}
	return id
}

func deadLetters(tube string) bool {
	c := connect(tube)
	defer c.Close()
	c.put(1)
	for i := 0; i < 2; i++ {
		succeeds(c.Release(c.mustGet(), 0, 0))
	}
	_, _, err := beanstalk.NewTube(c.Conn, tube+"-dead").PeekBuried()
	return gets(err, beanstalk.ErrNotFound)
}

func backOff(tube string) bool {
	c := connect(tube)
	defer c.Close()
	c.put(1)
	lost := connect(tube)
	lost.mustGet()
	lost.Close()
	for {
		stats, err := c.tube.Stats()
		succeeds(err)
		if stats["current-jobs-reserved"] == "0" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, ok := c.one()
	return !ok
}

func expiry(tube string) bool {
	c := connect(tube)
	defer c.Close()
	c.put(1)
	time.Sleep(1200 * time.Millisecond)
	_, ok := c.one()
	return !ok
}

func concurrency(tube string) bool {
	c, other := connect(tube), connect(tube)
	defer c.Close()
	defer other.Close()
	c.put(2)
	c.mustGet()
	_, ok := other.one()
	return !ok
}

func rate(tube string) bool {
	c := connect(tube)
	defer c.Close()
	c.put(2)
	succeeds(c.Delete(c.mustGet()))
	_, ok := c.one()
	return !ok
}

func main() {
	test(address(), []check{
		{"try:2 dead:TUBE-dead", "dead letters", deadLetters},
		{"try:5:60", "back-off", backOff},
		{"ttl:1", "expiry", expiry},
		{"max:1", "concurrency", concurrency},
		{"rate:1/60", "rate", rate},
	})
}
