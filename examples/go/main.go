// Puts a mail into the queue, once per key, or sends mails:
//
//	go run . put welcome-7 alice@example.org
//	go run . work
package main

import (
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

func main() {
	if len(os.Args) == 4 {
		queue, err := dial()
		if err == nil {
			err = produce(queue, os.Args[2], os.Args[3])
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	for {
		queue, err := dial()
		if err == nil {
			err = work(queue)
			queue.Close()
		}
		log.Print(err, "; connecting again")
		time.Sleep(time.Second)
	}
}

func produce(queue Client, key, address string) error {
	if err := queue.require("idp"); err != nil {
		return err
	}
	id, err := queue.put(address, "tub:mail idp:"+key+":3600")
	fmt.Println(id)
	return err
}

// work processes mails. A job has 5 tries, 10, 20, 40 and 80 seconds apart. Then the server buries the job in the tube
// mail-dead.
func work(queue Client) error {
	if err := queue.setTube("mail", "try:5:10 dead:mail-dead"); err != nil {
		return err
	}
	mail := beanstalk.NewTubeSet(queue.Conn, "mail")
	for {
		id, body, err := mail.Reserve(time.Hour)
		if isReply(err, beanstalk.ErrTimeout) {
			continue
		} else if err != nil {
			return err
		}
		if err = send(string(body), func() error { return queue.Touch(id) }); err != nil {
			_, err = queue.fail(id, err.Error())
		} else {
			err = queue.Delete(id)
		}
		if isReply(err, beanstalk.ErrNotFound) {
			log.Printf("job %d: no longer reserved by this worker", id)
		} else if err != nil {
			return err
		}
	}
}

func send(address string, touch func() error) error {
	if !strings.Contains(address, "@") {
		return fmt.Errorf("not an address: %s", address)
	}
	// Restarts the time to run (60 s). During long work, call this repeatedly.
	if err := touch(); err != nil {
		return err
	}
	fmt.Println("sent to", address)
	return nil
}
