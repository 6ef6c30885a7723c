// Tests nodestalker (npm). The library treats the first packet as the complete reply. Only a RESERVED reply can
// continue, if the packet does not end after the first line. The server must therefore send short replies in one piece,
// and the first line of RESERVED together with the body. The last step tests such replies many times.
'use strict';

const { Client } = require('nodestalker');
const { host, port, ok, same, sameBytes, fails, within, sleep, run, ofTube } = require('./checks.js');

// Returns a promise for each command. A job is { id, data }. An error contains the words of the reply.
class Connection {
  constructor(raw) {
    this.client = Client(`${host}:${port}`, raw);
    this.client.on('error', () => {});
  }

  do(command, ...args) {
    return new Promise((resolve, reject) => {
      this.client[command](...args).onEnd((error, data) => {
        if (error) reject(new Error(error.join(' ')));
        else resolve(data);
      });
    });
  }

  end() {
    this.client.disconnect();
  }
}

async function connect(tube, raw = false) {
  const c = new Connection(raw);
  if (tube) {
    await c.do('use', tube);
    await c.do('watch', tube);
    await c.do('ignore', 'default');
  }
  return c;
}

const put = async (c, ...args) => (await c.do('put', ...args))[0];

async function putReserveDelete(tube) {
  const c = await connect(tube);
  const first = await put(c, 'hello', 7, 0, 90);
  const second = await put(c, 'urgent', 3);
  const third = await put(c, 'hello\r\nagain', 7);
  ok(Number(first) < Number(second) && Number(second) < Number(third), 'ids grow');
  for (const [id, body] of [[second, 'urgent'], [first, 'hello'], [third, 'hello\r\nagain']]) {
    same(await c.do('reserve'), { id, data: body }, 'order and bodies');
    same(await c.do('deleteJob', id), ['DELETED'], 'delete');
    await fails('NOT_FOUND', c.do('deleteJob', id), 'delete twice');
    same(await c.do('peek', id), ['NOT_FOUND'], 'peek a deleted job');
  }
  c.end();
}

async function statistics(tube) {
  const c = await connect(tube);
  const server = await c.do('stats');
  same([server['max-job-size'], server.draining, typeof server.version], [65535, false, 'string'], 'stats');
  const id = await put(c, 'x', 10, 0, 60);
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
  await c.do('deleteJob', id);
  same(await c.do('stats_job', id), ['NOT_FOUND'], 'stats-job of a missing job');
  same(await c.do('stats_tube', 'no-such-tube'), ['NOT_FOUND'], 'stats-tube of a missing tube');
  c.end();
}

async function reserveTimesOut(tube) {
  const c = await connect(tube);
  const producer = await connect(tube);
  const wait = (seconds) => c.do('reserve_with_timeout', seconds);
  await within(0, 0.9, () => fails('TIMED_OUT', wait(0), 'timeout 0'), 'no wait');
  await within(0.995, 2, () => fails('TIMED_OUT', wait(1), 'timeout 1'), 'one second');
  const later = sleep(0.3).then(() => put(producer, 'wake up'));
  const job = await within(0.28, 1.3, () => c.do('reserve'), 'woken by a put');
  same(job, { id: await later, data: 'wake up' }, 'job');
  await c.do('deleteJob', job.id);
  c.end();
  producer.end();
}

async function releaseBuryKick(tube) {
  const c = await connect(tube);
  for (const peek of ['peek_ready', 'peek_delayed', 'peek_buried']) {
    same(await c.do(peek), ['NOT_FOUND'], 'peek in an empty tube');
  }
  const id = await put(c, 'job', 5, 100);
  same(await c.do('peek_delayed'), { id, data: 'job' }, 'peek-delayed');
  same(await c.do('kick', 1), ['1'], 'kick a delayed job');
  same(await c.do('peek_ready'), { id, data: 'job' }, 'peek-ready');
  await c.do('reserve');
  same(await c.do('release', id, 8, 1), ['RELEASED'], 'release');
  let stats = await c.do('stats_job', id);
  same([stats.state, stats.pri, stats.delay, stats.releases], ['delayed', 8, 1, 1], 'released with a delay');
  same((await within(0.9, 2, () => c.do('reserve_with_timeout', 5), 'delay of release')).id, id, 'released job');
  same(await c.do('bury', id, 6), ['BURIED'], 'bury');
  stats = await c.do('stats_job', id);
  same([stats.state, stats.pri, stats.buries], ['buried', 6, 1], 'buried');
  same(await c.do('peek_buried'), { id, data: 'job' }, 'peek-buried');
  same(await c.do('peek', id), { id, data: 'job' }, 'peek');
  same(await c.do('kick', 10), ['1'], 'kick a buried job');
  await c.do('deleteJob', id);
  for (const command of ['release', 'bury', 'touch']) {
    await fails('NOT_FOUND', c.do(command, id), `${command} of a missing job`);
  }
  c.end();
}

async function deleteInEachState(tube) {
  const c = await connect(tube);
  const other = await connect(tube);
  const held = await put(c, 'held', 0);
  await c.do('reserve');
  await fails('NOT_FOUND', other.do('deleteJob', held), 'held by another connection');
  const buried = await put(c, 'buried', 0);
  await c.do('reserve');
  await c.do('bury', buried);
  const ready = await put(c, 'ready');
  const late = await put(c, 'late', 0, 100);
  for (const id of [buried, ready, late]) same(await other.do('deleteJob', id), ['DELETED'], 'delete');
  c.end();
  same((await other.do('reserve_with_timeout', 3)).id, held, 'ready again after its holder disconnected');
  await other.do('deleteJob', held);
  other.end();
}

async function touchAndDeadline(tube) {
  const c = await connect(tube);
  const id = await put(c, 'work', 0, 0, 2);
  await c.do('reserve');
  await within(0.9, 1.6, () => fails('DEADLINE_SOON', c.do('reserve'), 'waiting near a deadline'), 'one second before');
  same(await c.do('touch', id), ['TOUCHED'], 'touch');
  await fails('TIMED_OUT', c.do('reserve_with_timeout', 0), 'touch extends the deadline');
  await c.do('deleteJob', id);
  c.end();
}

async function tubes(tube) {
  const c = await connect();
  same([await c.do('list_tube_used'), await c.do('list_tubes_watched')], [['default'], ['default']], 'a new connection');
  same(await c.do('ignore', 'default'), ['NOT_IGNORED'], 'the last tube stays watched');
  same([await c.do('watch', tube), await c.do('watch', tube), await c.do('ignore', 'default')], [['2'], ['2'], ['1']],
    'counts');
  same(await c.do('use', tube), [tube], 'use');
  same([await c.do('list_tube_used'), await c.do('list_tubes_watched')], [[tube], [tube]], 'used and watched');
  await fails('BAD_FORMAT', c.do('use', '-bad'), 'bad tube name');
  c.end();
}

async function pause(tube) {
  const c = await connect(tube);
  const other = await connect();
  const id = await put(c, 'held back');
  same(await c.do('pause_tube', tube, 60), ['PAUSED'], 'pause');
  await fails('TIMED_OUT', c.do('reserve_with_timeout', 0), 'paused');
  const resumed = sleep(0.3).then(() => other.do('pause_tube', tube, 0));
  same((await within(0.28, 1.5, () => c.do('reserve'), 'resumed immediately')).id, id, 'id');
  await resumed;
  await c.do('deleteJob', id);
  await fails('NOT_FOUND', c.do('pause_tube', 'no-such-tube', 1), 'pause of a missing tube');
  c.end();
  other.end();
}

async function bodies(tube) {
  const c = await connect(tube, true);
  const every = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
  for (const body of [Buffer.from('\r\n\r\n'), Buffer.from('a\r\nb\r\n'), every]) {
    const id = await put(c, body);
    const job = await c.do('reserve');
    same(job.id, id, 'id');
    sameBytes(job.data, body, 'reserve');
    await c.do('deleteJob', id);
  }
  const text = await connect(tube);
  const empty = await put(text, '');
  same(await text.do('reserve'), [empty, '0'], 'an empty body');
  await text.do('deleteJob', empty);
  for (const body of ['Gr\u00fc\u00dfe, \u4e16\u754c', 'x'.repeat(1000), 'x'.repeat(30000), 'x'.repeat(65535)]) {
    const id = await put(text, body);
    const job = await text.do('reserve');
    ok(job.id === id && job.data === body, `a body of ${body.length} characters`);
    await text.do('deleteJob', id);
  }
  await fails('JOB_TOO_BIG', put(text, 'x'.repeat(65536)), '65536 bytes are too many');
  same(await text.do('list_tube_used'), [tube], 'the connection is usable afterwards');
  c.end();
  text.end();
}

async function repliesComeWhole(tube) {
  const c = await connect(tube);
  const started = Date.now();
  for (let n = 0; n < 1500 && Date.now() - started < 20000; n++) {
    const body = `n${n}`.padEnd(1 + n % 900, '.');
    const id = await put(c, body, 0, 0, 60);
    same(await c.do('peek_ready'), { id, data: body }, 'peek-ready');
    same(await c.do('reserve'), { id, data: body }, 'reserve');
    if (n % 10 === 0) {
      same((await c.do('stats_job', id)).state, 'reserved', 'stats-job');
      same((await c.do('stats_tube', tube))['current-jobs-reserved'], 1, 'stats-tube');
      same((await c.do('stats'))['max-job-size'], 65535, 'stats');
    }
    same(await c.do('deleteJob', id), ['DELETED'], 'delete');
  }
  c.end();
}

run([putReserveDelete, statistics, reserveTimesOut, releaseBuryKick, deleteInEachState, touchAndDeadline, tubes, pause,
  bodies, repliesComeWhole]);
