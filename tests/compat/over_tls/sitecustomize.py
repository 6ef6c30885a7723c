"""On PYTHONPATH, this has libraries that know no TLS speak it: what connects to a server gets a socket with TLS, which trusts the
authority in COMPAT_CA and looks whether the certificate is for localhost."""

import os
import socket
import ssl

context = ssl.create_default_context(cafile=os.environ["COMPAT_CA"])
plain = socket.create_connection


def create_connection(*arguments, **more):
    return context.wrap_socket(plain(*arguments, **more), server_hostname="localhost")


socket.create_connection = create_connection
