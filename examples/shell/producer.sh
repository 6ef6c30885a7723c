#!/bin/sh
# Puts a mail into the queue, once per key: ./producer.sh welcome-7 alice@example.org
exec beanpole put -t mail --unique "$1:3600" -- "$2"
