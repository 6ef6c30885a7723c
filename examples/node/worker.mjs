// Sends mails. The server retries what fails: 5 tries, 10, 20, 40 and 80 seconds apart, then the tube mail-dead.
import { Client } from './client.mjs';

async function send(address) {
  if (!address.includes('@')) throw new RangeError(`not an address: ${address}`);
  console.log(`sent to ${address}`);
}

const queue = await Client.connect();
await queue.setTube('mail', 'try:5:10 dead:mail-dead');
await queue.watch('mail');
await queue.ignore('default');
for (;;) {
  const job = await queue.reserve();
  const error = await send(job.body).catch(error => error);
  await (error ? queue.fail(job.id, String(error)) : queue.delete(job.id));
}
