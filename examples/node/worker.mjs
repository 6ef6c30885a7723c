// Sends mails. A job has 5 tries, 10, 20, 40 and 80 seconds apart. Then the server buries the job in mail-dead.
import { setTimeout } from 'node:timers/promises';
import { Client } from './client.mjs';

async function send(address, touch) {
  if (!address.includes('@')) throw new RangeError(`not an address: ${address}`);
  await touch(); // Restarts the time to run (60 s). During long work, call this repeatedly.
  console.log(`sent to ${address}`);
}

async function work(queue) {
  await queue.setTube('mail', 'try:5:10 dead:mail-dead');
  await queue.watch('mail');
  await queue.ignore('default');
  for (;;) {
    const job = await queue.reserve();
    try {
      const error = await send(job.body.toString(), () => queue.touch(job.id)).catch(error => error);
      await (error ? queue.fail(job.id, String(error)) : queue.delete(job.id));
    } catch (error) {
      if (error.reply !== 'NOT_FOUND') throw error;
      console.error(`job ${job.id}: no longer reserved by this worker`);
    }
  }
}

for (;;) {
  try {
    await work(await Client.connect());
  } catch (error) {
    if (error.reply) throw error; // Any other error means that the connection is lost.
    console.error(`${error.message}; connecting again`);
    await setTimeout(1000);
  }
}
