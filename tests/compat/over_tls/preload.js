// Preloaded (node -r), this has libraries that know no TLS speak it: what net.createConnection gives trusts the authority in
// COMPAT_CA and looks whether the certificate is for localhost.
'use strict';

const fs = require('fs');
const net = require('net');
const tls = require('tls');

const ca = fs.readFileSync(process.env.COMPAT_CA);

net.createConnection = (port, host, connected) => tls.connect({ port, host, ca, servername: 'localhost' }, connected);
