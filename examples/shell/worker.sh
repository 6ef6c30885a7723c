#!/bin/sh
# Sends mails. A job has 5 attempts, 10, 20, 40 and 80 seconds apart. Then the server moves the job to mail-dead.
beanpole tube mail try:5:10 dead:mail-dead || exit
exec beanpole work mail -- "$(dirname "$0")/send.sh"
