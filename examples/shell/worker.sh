#!/bin/sh
# Sends mails. The server retries what fails: 5 tries, 10, 20, 40 and 80 seconds apart, then the tube mail-dead.
beanpole tube mail try:5:10 dead:mail-dead || exit
exec beanpole work mail -- "$(dirname "$0")/send.sh"
