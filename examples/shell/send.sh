#!/bin/sh
# Sends a mail to the address on stdin. A nonzero exit status reports a failed try, with stderr as the reason.
read -r address
case $address in
    *@*) echo "sent to $address" ;;
    *) echo "not an address: $address" >&2; exit 1 ;;
esac
