// Puts a mail into the queue, once per key: node producer.mjs welcome-7 alice@example.org
import { Client } from './client.mjs';

const [key, address] = process.argv.slice(2);
const queue = await Client.connect();
await queue.require('idp');
console.log(await queue.put(address, `tub:mail idp:${key}:3600`));
queue.close();
