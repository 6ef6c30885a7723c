// `node -r` preloads this file, which makes libraries without TLS support use TLS. Sockets of net.createConnection
// trust the authority in COMPAT_CA and check that the certificate is valid for localhost.
'use strict';

const fs = require('fs');
const net = require('net');
const tls = require('tls');

const ca = fs.readFileSync(process.env.COMPAT_CA);

net.createConnection = (port, host, connected) => tls.connect({ port, host, ca, servername: 'localhost' }, connected);
