// A separate queue for a Node test suite: node --test queue.test.mjs
import assert from 'node:assert';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';

let server, host, port;

before(async () => {
  const options = ['-p', '0', '--ready-fd', '1', '--exit-with-parent'];
  server = spawn(process.env.BEANPOLE ?? 'beanpole', options, { stdio: ['ignore', 'pipe', 'ignore'] });
  const [line] = await once(createInterface(server.stdout), 'line');
  [host, port] = line.split(' ')[0].split(':');
});

after(async () => {
  server.kill();
  await once(server, 'exit');
});

test('a job is delivered', async () => {
  const socket = connect(Number(port), host);
  socket.write('put 0 0 60 5\r\nhello\r\nreserve\r\n');
  const answer = [];
  for await (const line of createInterface(socket)) {
    if (answer.push(line) === 3) break;
  }
  socket.destroy();
  assert.deepStrictEqual(answer, ['INSERTED 1', 'RESERVED 1 5', 'hello']);
});
