// Tests fivebeans (npm). The library parses statistics as YAML, and considers a reply complete when all announced bytes
// have arrived.
'use strict';

const { client: Client } = require('fivebeans');
const { host, port, ok, same, sameBytes, fails, within, sleep, run, ofTube } = require('./checks.js');

// Wraps the client and returns promises. A command with several results resolves to an array.
class Connection {
  constructor() {
    this.client = new Client(host, port);
  }

  open() {
    return new Promise((resolve, reject) => {
      this.client.on('connect', resolve).on('error', reject);
      this.client.connect();
    });
  }

  do(command, ...args) {
    return new Promise((resolve, reject) => {
      this.client[command](...args, (error, ...results) => {
        if (error) reject(new Error(error));
        else resolve(results.length > 1 ? results : results[0]);
      });
    });
  }

  end() {
    this.client.end();
  }
}

async function connect(tube) {
  const c = new Connection();
  await c.open();
  if (tube) {
    await c.do('use', tube);
    await c.do('watch', tube);
    await c.do('ignore', 'default');
  }
  return c;
}

const put = (c, body, priority = 0, delay = 0, ttr = 60) => c.do('put', priority, delay, ttr, body);

async function putReserveDelete(tube) {
  const c = await connect(tube);
  const first = await put(c, 'hello', 7, 0, 90);
  const second = await put(c, 'urgent', 3);
  const third = await put(c, 'hello again', 7);
  ok(Number(first) < Number(second) && Number(second) < Number(third), 'ids grow');
  for (const [id, body] of [[second, 'urgent'], [first, 'hello'], [third, 'hello again']]) {
    const [got, data] = await c.do('reserve');
    same([got, data.toString()], [id, body], 'order and bodies');
    await c.do('destroy', id);
    await fails('NOT_FOUND', c.do('destroy', id), 'delete twice');
    await fails('NOT_FOUND', c.do('peek', id), 'peek a deleted job');
  }
  c.end();
}

async function statistics(tube) {
  const c = await connect(tube);
  const server = await c.do('stats');
  same([server['max-job-size'], server.draining, typeof server.version, typeof server['rusage-utime']],
    [65535, false, 'string', 'number'], 'stats');
  const id = await put(c, 'x', 10);
  same(await c.do('stats_job', id), {
    id: Number(id), tube, state: 'ready', pri: 10, age: 0, delay: 0, ttr: 60, 'time-left': 0, file: 0,
    reserves: 0, timeouts: 0, releases: 0, buries: 0, kicks: 0,
  }, 'stats-job');
  same(ofTube(await c.do('stats_tube', tube)), {
    name: tube, 'current-jobs-urgent': 1, 'current-jobs-ready': 1, 'current-jobs-reserved': 0,
    'current-jobs-delayed': 0, 'current-jobs-buried': 0, 'total-jobs': 1, 'current-using': 1, 'current-watching': 1,
    'current-waiting': 0, 'cmd-delete': 0, 'cmd-pause-tube': 0, pause: 0, 'pause-time-left': 0,
  }, 'stats-tube');
  const list = await c.do('list_tubes');
  ok(list[0] === 'default' && list.includes(tube), 'list-tubes');
  await c.do('destroy', id);
  await fails('NOT_FOUND', c.do('stats_job', id), 'stats-job of a missing job');
  await fails('NOT_FOUND', c.do('stats_tube', 'no-such-tube'), 'stats-tube of a missing tube');
  c.end();
}

async function reserveTimesOut(tube) {
  const c = await connect(tube);
  const producer = await connect(tube);
  const wait = (seconds) => c.do('reserve_with_timeout', seconds);
  await within(0, 0.9, () => fails('TIMED_OUT', wait(0), 'timeout 0'), 'no wait');
  await within(0.995, 2, () => fails('TIMED_OUT', wait(1), 'timeout 1'), 'one second');
  const later = sleep(0.3).then(() => put(producer, 'wake up'));
  const [id] = await within(0.28, 1.3, () => c.do('reserve'), 'woken by a put');
  same(id, await later, 'id');
  await c.do('destroy', id);
  c.end();
  producer.end();
}

async function releaseBuryKick(tube) {
  const c = await connect(tube);
  for (const peek of ['peek_ready', 'peek_delayed', 'peek_buried']) {
    await fails('NOT_FOUND', c.do(peek), 'peek in an empty tube');
  }
  const id = await put(c, 'job', 5, 100);
  const seen = async (...peek) => (await c.do(...peek)).map(String);
  same(await seen('peek_delayed'), [id, 'job'], 'peek-delayed');
  same(await seen('peek', id), [id, 'job'], 'peek');
  await c.do('kick_job', id);
  same(await seen('peek_ready'), [id, 'job'], 'peek-ready');
  await fails('NOT_FOUND', c.do('kick_job', id), 'kick-job of a ready job');
  await c.do('reserve');
  await c.do('release', id, 8, 1);
  let stats = await c.do('stats_job', id);
  same([stats.state, stats.pri, stats.delay, stats.releases], ['delayed', 8, 1, 1], 'released with a delay');
  same((await within(0.9, 2, () => c.do('reserve_with_timeout', 5), 'delay of release'))[0], id, 'released job');
  await c.do('bury', id, 6);
  stats = await c.do('stats_job', id);
  same([stats.state, stats.pri, stats.buries], ['buried', 6, 1], 'buried');
  same(await seen('peek_buried'), [id, 'job'], 'peek-buried');
  same(await c.do('kick', 10), '1', 'kick');
  same(await c.do('kick', 10), '0', 'nothing left to kick');
  await c.do('destroy', id);
  for (const call of [['release', id, 0, 0], ['bury', id, 0], ['touch', id], ['kick_job', id]]) {
    await fails('NOT_FOUND', c.do(...call), `${call[0]} of a missing job`);
  }
  c.end();
}

async function deleteInEachState(tube) {
  const c = await connect(tube);
  const other = await connect(tube);
  const held = await put(c, 'held');
  await c.do('reserve');
  await fails('NOT_FOUND', other.do('destroy', held), 'held by another connection');
  const buried = await put(c, 'buried');
  await c.do('reserve');
  await c.do('bury', buried, 0);
  const ready = await put(c, 'ready');
  const late = await put(c, 'late', 0, 100);
  for (const id of [buried, ready, late]) await other.do('destroy', id);
  other.end();
  await c.do('destroy', held);
  same((await c.do('stats_tube', tube))['cmd-delete'], 4, 'deletes counted');
  c.end();
}

async function touchAndDeadline(tube) {
  const c = await connect(tube);
  const id = await put(c, 'work', 0, 0, 2);
  await c.do('reserve');
  await within(0.9, 1.6, () => fails('DEADLINE_SOON', c.do('reserve'), 'waiting near a deadline'), 'one second before');
  await fails('DEADLINE_SOON', c.do('reserve_with_timeout', 0), 'the deadline is still near');
  await c.do('touch', id);
  await fails('TIMED_OUT', c.do('reserve_with_timeout', 0), 'touch extends the deadline');
  await c.do('destroy', id);
  c.end();
}

async function tubes(tube) {
  const c = await connect();
  same([await c.do('list_tube_used'), await c.do('list_tubes_watched')], ['default', ['default']], 'a new connection');
  await fails('NOT_IGNORED', c.do('ignore', 'default'), 'the last tube stays watched');
  same([await c.do('watch', tube), await c.do('watch', tube), await c.do('ignore', 'default')], ['2', '2', '1'], 'counts');
  same(await c.do('use', tube), tube, 'use');
  same([await c.do('list_tube_used'), await c.do('list_tubes_watched')], [tube, [tube]], 'used and watched');
  await fails('BAD_FORMAT', c.do('use', '-bad'), 'bad tube name');
  c.end();
}

async function pause(tube) {
  const c = await connect(tube);
  const other = await connect();
  const id = await put(c, 'held back');
  await c.do('pause_tube', tube, 60);
  await fails('TIMED_OUT', c.do('reserve_with_timeout', 0), 'paused');
  const resumed = sleep(0.3).then(() => other.do('pause_tube', tube, 0));
  same((await within(0.28, 1.5, () => c.do('reserve'), 'resumed immediately'))[0], id, 'id');
  await resumed;
  await c.do('destroy', id);
  await fails('NOT_FOUND', c.do('pause_tube', 'no-such-tube', 1), 'pause of a missing tube');
  c.end();
  other.end();
}

async function bodies(tube) {
  const c = await connect(tube);
  const every = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
  const large = Buffer.concat(Array(256).fill(every)).subarray(1);
  for (const body of [Buffer.alloc(0), Buffer.from('\r\n'), Buffer.from('a\r\nb\r\n'), Buffer.from('\0'), every, large]) {
    const id = await put(c, body);
    sameBytes((await c.do('peek', id))[1], body, 'peek');
    sameBytes((await c.do('reserve'))[1], body, 'reserve');
    await c.do('destroy', id);
  }
  same(large.length, 65535, 'the largest body');
  await fails('JOB_TOO_BIG', put(c, Buffer.alloc(65536)), '65536 bytes are too many');
  same(await c.do('list_tube_used'), tube, 'the connection is usable afterwards');
  c.end();
}

// Sends many commands at once. The replies must arrive in order.
async function pipeline(tube) {
  const c = await connect(tube);
  const ids = await Promise.all(Array.from({ length: 500 }, (_, n) => put(c, `n${n}`)));
  same(ids.map(Number), ids.map((_, n) => Number(ids[0]) + n), 'ids in order');
  same(await Promise.all(ids.map((id) => c.do('destroy', id))), ids.map(() => undefined), 'deleted');
  same((await c.do('stats_tube', tube))['current-jobs-ready'], 0, 'none left');
  c.end();
}

run([putReserveDelete, statistics, reserveTimesOut, releaseBuryKick, deleteInEachState, touchAndDeadline, tubes, pause,
  bodies, pipeline]);
