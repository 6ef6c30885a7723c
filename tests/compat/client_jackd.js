// Tests jackd (npm). The library accepts only text as a body (objects are converted to JSON, and empty bodies
// are refused), and returns statistics as the original text.
'use strict';

const JackdClient = require('jackd');
const { host, port, ok, same, sameBytes, fails, within, sleep, run, ofTube } = require('./checks.js');

async function connect(tube) {
  const c = await new JackdClient().connect({ host, port });
  if (tube) {
    await c.use(tube);
    await c.watch(tube);
    await c.ignore('default');
  }
  return c;
}

// Parses lines of the form "key: value". Returns an object of strings without quotation marks.
function values(text) {
  const lines = text.split('\n');
  same([lines[0], lines[lines.length - 1]], ['---', ''], 'first and last line');
  return Object.fromEntries(lines.slice(1, -1).map((line) => {
    const [, key, value] = /^([a-z0-9-]+): (.*)$/.exec(line);
    return [key, value.replace(/^"(.*)"$/, '$1')];
  }));
}

// The library does not send the CR LF of this command, so the test sends it separately.
async function pauseTube(c, tube, delay) {
  const reply = c.pauseTube(tube, { delay });
  await c.write(Buffer.from('\r\n'));
  await reply;
}

async function putReserveDelete(tube) {
  const c = await connect(tube);
  const first = await c.put('hello', { priority: 7, delay: 0, ttr: 90 });
  const second = await c.put('urgent', { priority: 3 });
  const third = await c.put({ n: 1 }, { priority: 7 });
  ok(Number(first) < Number(second) && Number(second) < Number(third), 'ids grow');
  for (const [id, body] of [[second, 'urgent'], [first, 'hello'], [third, '{"n":1}']]) {
    const job = await c.reserve();
    same([job.id, job.payload.toString()], [id, body], 'order and bodies');
    await c.delete(id);
    await fails('NOT_FOUND', c.delete(id), 'delete twice');
    await fails('NOT_FOUND', c.peek(id), 'peek a deleted job');
  }
  await c.quit();
}

async function statistics(tube) {
  const c = await connect(tube);
  const server = values(await c.stats());
  same([server['max-job-size'], server.draining], ['65535', 'false'], 'stats');
  for (const key of ['version', 'id', 'hostname', 'os', 'platform', 'cmd-put', 'total-jobs', 'binlog-max-size']) {
    ok(server[key] !== undefined, `stats has ${key}`);
  }
  const id = await c.put('x', { priority: 10, ttr: 60 });
  same(values(await c.statsJob(id)), {
    id, tube, state: 'ready', pri: '10', age: '0', delay: '0', ttr: '60', 'time-left': '0', file: '0',
    reserves: '0', timeouts: '0', releases: '0', buries: '0', kicks: '0',
  }, 'stats-job');
  same(ofTube(values(await c.statsTube(tube))), {
    name: tube, 'current-jobs-urgent': '1', 'current-jobs-ready': '1', 'current-jobs-reserved': '0',
    'current-jobs-delayed': '0', 'current-jobs-buried': '0', 'total-jobs': '1', 'current-using': '1',
    'current-watching': '1', 'current-waiting': '0', 'cmd-delete': '0', 'cmd-pause-tube': '0', pause: '0',
    'pause-time-left': '0',
  }, 'stats-tube');
  await c.delete(id);
  await fails('NOT_FOUND', c.statsJob(id), 'stats-job of a missing job');
  await fails('NOT_FOUND', c.statsTube('no-such-tube'), 'stats-tube of a missing tube');
  await c.quit();
}

async function reserveTimesOut(tube) {
  const c = await connect(tube);
  const producer = await connect(tube);
  await within(0, 0.9, () => fails('TIMED_OUT', c.reserveWithTimeout(0), 'timeout 0'), 'no wait');
  await within(0.995, 2, () => fails('TIMED_OUT', c.reserveWithTimeout(1), 'timeout 1'), 'one second');
  for (const wait of [() => c.reserve(), () => c.reserveWithTimeout(10)]) {
    const put = sleep(0.3).then(() => producer.put('wake up'));
    const job = await within(0.28, 1.3, wait, 'woken by a put');
    same(job.id, await put, 'id');
    await c.delete(job.id);
  }
  await c.quit();
  await producer.quit();
}

async function releaseBuryKick(tube) {
  const c = await connect(tube);
  for (const peek of [c.peekReady, c.peekDelayed, c.peekBuried]) {
    await fails('NOT_FOUND', peek.call(c), 'peek in an empty tube');
  }
  const id = await c.put('job', { priority: 5, delay: 100 });
  const seen = async (peek) => { const job = await peek.call(c); return [job.id, job.payload.toString()]; };
  same(await seen(c.peekDelayed), [id, 'job'], 'peek-delayed');
  same((await c.peek(id)).payload.toString(), 'job', 'peek');
  await c.kickJob(id);
  same(await seen(c.peekReady), [id, 'job'], 'peek-ready');
  await fails('NOT_FOUND', c.kickJob(id), 'kick-job of a ready job');
  await c.reserve();
  await c.release(id, { priority: 8, delay: 1 });
  let stats = values(await c.statsJob(id));
  same([stats.state, stats.pri, stats.delay, stats.releases], ['delayed', '8', '1', '1'], 'released with a delay');
  same((await within(0.9, 2, () => c.reserveWithTimeout(5), 'delay of release')).id, id, 'released job');
  await c.bury(id, 6);
  stats = values(await c.statsJob(id));
  same([stats.state, stats.pri, stats.buries], ['buried', '6', '1'], 'buried');
  same(await seen(c.peekBuried), [id, 'job'], 'peek-buried');
  same(await c.kick(10), 1, 'kick');
  same(await c.kick(10), 0, 'nothing left to kick');
  await c.delete(id);
  for (const call of [() => c.release(id), () => c.bury(id), () => c.touch(id), () => c.kickJob(id)]) {
    await fails('NOT_FOUND', call(), 'no such job');
  }
  await c.quit();
}

async function deleteInEachState(tube) {
  const c = await connect(tube);
  const other = await connect(tube);
  const held = await c.put('held');
  await c.reserve();
  await fails('NOT_FOUND', other.delete(held), 'held by another connection');
  const buried = await c.put('buried');
  await c.reserve();
  await c.bury(buried);
  const ready = await c.put('ready');
  const late = await c.put('late', { delay: 100 });
  for (const id of [buried, ready, late]) await other.delete(id);
  await c.delete(held);
  same(values(await c.statsTube(tube))['cmd-delete'], '4', 'deletes counted');
  await c.quit();
  await other.quit();
}

async function touchAndDeadline(tube) {
  const c = await connect(tube);
  const id = await c.put('work', { ttr: 2 });
  await c.reserve();
  await within(0.9, 1.6, () => fails('DEADLINE_SOON', c.reserve(), 'waiting near a deadline'), 'one second before');
  await fails('DEADLINE_SOON', c.reserveWithTimeout(0), 'the deadline is still near');
  await c.touch(id);
  await fails('TIMED_OUT', c.reserveWithTimeout(0), 'touch extends the deadline');
  same(values(await c.statsJob(id))['time-left'], '1', 'time left');
  await c.delete(id);
  await c.quit();
}

async function reserveById(tube) {
  const c = await connect(tube);
  const other = await connect();
  const id = await c.put('late', { delay: 100 });
  const job = await other.reserveJob(id);
  same([job.id, job.payload.toString()], [id, 'late'], 'reserve-job');
  await fails('NOT_FOUND', c.reserveJob(id), 'already reserved');
  await other.quit();
  same((await c.reserveWithTimeout(3)).id, id, 'ready again after its holder disconnected');
  await c.delete(id);
  await fails('NOT_FOUND', c.reserveJob(id), 'no such job');
  await c.quit();
}

async function tubes(tube) {
  const c = await connect();
  same([await c.getCurrentTube(), await c.listTubesWatched()], ['default', '---\n- default\n'], 'a new connection');
  await fails('NOT_IGNORED', c.ignore('default'), 'the last tube stays watched');
  same([await c.watch(tube), await c.watch(tube), await c.watch(tube + '2')], [2, 2, 3], 'watch counts');
  same([await c.ignore('default'), await c.ignore('default')], [2, 2], 'ignore counts');
  same((await c.listTubesWatched()).split('\n').sort(), ['', '---', '- ' + tube, '- ' + tube + '2'].sort(), 'watched');
  same([await c.use(tube), await c.listTubeUsed()], [tube, tube], 'used');
  ok((await c.listTubes()).startsWith('---\n- default\n'), 'list-tubes');
  await fails('BAD_FORMAT', c.use('-bad'), 'bad tube name');
  await c.quit();
}

async function pause(tube) {
  const c = await connect(tube);
  const other = await connect();
  await c.put('held back');
  await pauseTube(c, tube, 60);
  await fails('TIMED_OUT', c.reserveWithTimeout(0), 'paused');
  same(values(await c.statsTube(tube)).pause, '60', 'shown in stats-tube');
  const resumed = sleep(0.3).then(() => pauseTube(other, tube, 0));
  const job = await within(0.28, 1.5, () => c.reserveWithTimeout(10), 'resumed immediately');
  await resumed;
  await c.delete(job.id);
  await fails('NOT_FOUND', pauseTube(c, 'no-such-tube', 1), 'pause of a missing tube');
  await c.quit();
  await other.quit();
}

async function bodies(tube) {
  const c = await connect(tube);
  for (const body of ['\r\n', 'a\r\nb\r\n', '\0', 'Gr\u00fc\u00dfe, \u4e16\u754c', 'x'.repeat(65535),
    '\u00fc\r\n'.repeat(16383)]) {
    const id = await c.put(body);
    sameBytes((await c.peek(id)).payload, Buffer.from(body), 'peek');
    const job = await c.reserve();
    sameBytes(job.payload, Buffer.from(body), 'reserve');
    await c.delete(job.id);
  }
  await fails('JOB_TOO_BIG', c.put('x'.repeat(65536)), '65536 bytes are too many');
  same(await c.listTubeUsed(), tube, 'the connection is usable afterwards');
  await c.quit();
}

run([putReserveDelete, statistics, reserveTimesOut, releaseBuryKick, deleteInEachState, touchAndDeadline, reserveById,
  tubes, pause, bodies]);
