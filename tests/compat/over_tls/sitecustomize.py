"""With this module on PYTHONPATH, libraries without TLS support use TLS: sockets that connect to a server are wrapped
with TLS. They trust the authority in COMPAT_CA and check that the certificate is valid for localhost."""

import os
import socket
import ssl

context = ssl.create_default_context(cafile=os.environ["COMPAT_CA"])
plain = socket.create_connection


def create_connection(*arguments, **more):
    return context.wrap_socket(plain(*arguments, **more), server_hostname="localhost")


socket.create_connection = create_connection
