"""Puts a mail into the queue, once per key: python3 producer.py welcome-7 alice@example.org"""
import sys

from client import Client

key, address = sys.argv[1:]
with Client(use="mail") as queue:
    queue.require("idp")
    print(queue.put_tagged(address, f"idp:{key}:3600"))
