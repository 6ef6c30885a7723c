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
	queue, err := dial()
	if err == nil && len(os.Args) == 4 {
		err = produce(queue, os.Args[2], os.Args[3])
	} else if err == nil {
		err = work(queue)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func produce(queue Client, key, address string) error {
	id, err := queue.put(address, "tub:mail idp:"+key+":3600")
	fmt.Println(id)
	return err
}

// work lets the server retry what fails: 5 tries, 10, 20, 40 and 80 seconds apart, then the tube mail-dead.
func work(queue Client) error {
	if err := queue.setTube("mail", "try:5:10 dead:mail-dead"); err != nil {
		return err
	}
	mail := beanstalk.NewTubeSet(queue.Conn, "mail")
	for {
		id, body, err := mail.Reserve(time.Hour)
		if err != nil {
			return err
		}
		if err = send(string(body)); err != nil {
			_, err = queue.fail(id, err.Error())
		} else {
			err = queue.Delete(id)
		}
		if err != nil {
			return err
		}
	}
}

func send(address string) error {
	if !strings.Contains(address, "@") {
		return fmt.Errorf("not an address: %s", address)
	}
	fmt.Println("sent to", address)
	return nil
}
