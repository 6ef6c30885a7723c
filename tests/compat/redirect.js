// `node -r` preloads this file before test suites that use port 11300. Redirects their connections to COMPAT_PORT.
'use strict';

const net = require('net');

const real = net.Socket.prototype.connect;
net.Socket.prototype.connect = function connect(...args) {
  const options = Array.isArray(args[0]) ? args[0][0] : args[0];
  if (options && typeof options === 'object' && Number(options.port) === 11300) {
    options.port = Number(process.env.COMPAT_PORT);
    options.host = '127.0.0.1';
  }
  return real.apply(this, args);
};
