#!/bin/sh
# Sends mails. A job has 5 tries, 10, 20, 40 and 80 seconds apart. Then the server buries the job in mail-dead.
beanpole tube mail try:5:10 dead:mail-dead || exit
exec beanpole work mail -- "$(dirname "$0")/send.sh"
